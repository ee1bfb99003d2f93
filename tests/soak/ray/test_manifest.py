"""The manifest for KubeRay in docs/cluster.md: what Ray reads of it, and what must agree in it."""

import pathlib
import re

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

import unmask
from unmask.ray.serve import app

PAGE = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "cluster.md").read_text()


def manifest() -> dict:
    blocks = re.findall(r"^```yaml\n(.*?)^```\n", PAGE, re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if "kind: RayService" in block]
    return yaml.safe_load(block)


def test_serve_accepts_the_applications():
    config = ServeDeploySchema.model_validate(yaml.safe_load(manifest()["spec"]["serveConfigV2"]))
    (application,) = config.applications
    assert application.import_path == "unmask.ray.serve:app"
    app(application.args)


def test_unknown_parameters_are_refused_by_name():
    with pytest.raises(unmask.InvalidValueError, match="max_replica"):
        app({"model": "tiny-block", "max_replica": 2})
    with pytest.raises(TypeError, match="expected the parameter model"):
        app({"max_replicas": 2})


def test_a_worker_holds_one_engine():
    spec = manifest()["spec"]
    args = yaml.safe_load(spec["serveConfigV2"])["applications"][0]["args"]
    (group,) = spec["rayClusterConfig"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert int(container["resources"]["limits"]["cpu"]) == args["num_cpus"] == args["threads"]
    assert (group["minReplicas"], group["maxReplicas"]) == (args["min_replicas"], args["max_replicas"])
    (mount,) = container["volumeMounts"]
    assert mount["name"] in [volume["name"] for volume in pod["volumes"]]
    assert args["model"].startswith(mount["mountPath"] + "/")
    # KubeRay takes the parameters of `ray start` as texts.
    groups = [spec["rayClusterConfig"]["headGroupSpec"], group]
    assert all(isinstance(value, str) for one in groups for value in one["rayStartParams"].values())


def test_the_image_has_the_ray_that_is_tested():
    pinned = (pathlib.Path(__file__).parent / "requirements.txt").read_text()
    (version,) = re.findall(r"^ray\[.*\]==(\S+)$", pinned, re.MULTILINE)
    assert f"FROM rayproject/ray:{version}-py311" in PAGE
