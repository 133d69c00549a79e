"""What `test_on_ray.py` starts: `python ray_program.py PORT DIR`. Says how many replicas run, then serves on."""

from __future__ import annotations

import sys
import threading
import time


def tell() -> None:
    import ray
    from ray import serve

    while True:
        time.sleep(0.5)
        if not ray.is_initialized():  # asking would start a cluster of its own
            continue
        try:
            application = serve.status().applications["larvatus"]
        except Exception:  # not there yet
            continue
        states = {name: dict(each.replica_states) for name, each in application.deployments.items()}
        print(application.status.value, states, flush=True)
        if application.status.value in ("RUNNING", "DEPLOY_FAILED", "UNHEALTHY"):
            print(application.message, flush=True)
            return


def main() -> None:
    from larvatus.inference.model.loading import LoadOptions
    from larvatus.interfaces.serve.on_ray import run_on_ray
    from larvatus.interfaces.serve.settings import ServeSettings

    threading.Thread(target=tell, daemon=True).start()
    settings = ServeSettings(port=int(sys.argv[1]))
    run_on_ray(sys.argv[2:], settings, replicas=2, address="local", running=LoadOptions(device="cpu"), cpus=0.5)
    print("ended", flush=True)


if __name__ == "__main__":
    main()
