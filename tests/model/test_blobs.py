"""Keys of content: the same here and in stores that were filled long ago."""

from levers9.model.blobs import blob_key


def test_a_blob_is_named_by_its_hash() -> None:
    assert blob_key(b"levers") == "blob/3b25556910780c855770713046f70b943eaea20c4759d9d0ad12322adb5c2117"
