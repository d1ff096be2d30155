"""What code inherits of the worker's environment: no secret, whatever a pod is given."""

import pytest

from levers9.actors.worker.runtime.environment import visible

CANARY = "canary-7f3a"
SECRETS = {
    "LEVERS9_WORKER_TOKEN": CANARY,
    "LEVERS9_TOKEN": CANARY,
    "LEVERS9_AGENT_TOKEN": CANARY,
    "LEVERS9_REPLICA_TOKEN": CANARY,
    "LEVERS9_DATABASE_URL": f"postgres://me:{CANARY}@db/levers9",
    "LEVERS9_REDIS_URL": f"redis://:{CANARY}@redis",
    "LEVERS9_POD_IP": CANARY,
    "LEVERS9_HOST_IP": CANARY,
    "KUBERNETES_SERVICE_HOST": CANARY,
    "KUBERNETES_PORT_443_TCP_ADDR": CANARY,
    "KUBECONFIG": f"/home/{CANARY}/config",
    "OTHER_TENANT_PORT_5432_TCP_ADDR": CANARY,
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "AWS_WEB_IDENTITY_TOKEN_FILE": f"/var/run/{CANARY}",
    "GOOGLE_APPLICATION_CREDENTIALS": f"/var/run/{CANARY}",
    "AZURE_CLIENT_SECRET": CANARY,
    "HTTPS_PROXY": f"http://me:{CANARY}@proxy.corp:3128",
    "http_proxy": f"http://{CANARY}@proxy.corp",
    "ALL_PROXY": f"http://me:{CANARY}%40proxy.corp",
    "PIP_INDEX_URL": f"https://me:{CANARY}@index/simple",
    "HF_TOKEN": CANARY,
}


def test_no_secret_of_a_worker_s_pod_reaches_its_containers() -> None:
    passed = visible(SECRETS | {"PATH": "/bin", "CUDA_HOME": "/cuda"})
    assert passed == {"PATH": "/bin", "CUDA_HOME": "/cuda"}
    assert CANARY not in repr(passed)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "no_proxy"])
def test_a_proxy_without_a_password_is_told_to_the_code(name: str) -> None:
    assert visible({name: "http://proxy.corp:3128"}) == {name: "http://proxy.corp:3128"}
