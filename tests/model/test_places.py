from levers9.model.places import dev_connection_path


def test_the_notes_of_dev_are_in_the_users_runtime_folder() -> None:
    assert dev_connection_path({"XDG_RUNTIME_DIR": "/run/user/7"}, 7) == "/run/user/7/levers9/dev.json"


def test_without_one_they_are_in_a_folder_of_the_users_own() -> None:
    assert dev_connection_path({}, 7) == "/tmp/levers9-7/dev.json"
