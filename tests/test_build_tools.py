"""What build.sh is made of: the corpus, the server, the lists of files and hashes, the compiler's wrapper."""

import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import urllib.error
import urllib.request
import zipfile

import pytest

if sys.platform == "emscripten":
    pytest.skip("the build's tools run on the machine, not in the tab", allow_module_level=True)

from posttrainllm.backends.gpu import shader

from tools import check, corpus, dist, downloads, emscripten, engine, fuzz, lock_requirements, paths, runtime, serve, shell, venv

built = pytest.mark.skipif(not (paths.DIST / "precache.json").exists(), reason="dist/ is not built")

PLAY = """# A Play

## ACT I

_Enter ROMEO and
others_

**ROMEO**  
_\\[Aside\\]_  
Shall I hear more,  
or shall I *speak* at this?

_Exit Nurse_

More of the same.

**First Citizen:**  
_[To them]_ It is &amp; was—so _

**MUTE**  
_Bows_
"""


def test_a_play_becomes_names_and_lines():
    assert corpus.plain(PLAY) == (
        "ROMEO:\nShall I hear more,\nor shall I at this?\nMore of the same.\n\nFIRST CITIZEN:\nIt is & was--so\n\n"
    )


def test_the_corpus_is_the_pinned_one():
    text = corpus.TARGET.read_text()
    assert hashlib.sha256(text.encode()).hexdigest() == corpus.SHA256
    assert 1e6 < len(text) < 6e6 and text.isascii()
    assert "\n\nROMEO:\n" in text[: int(len(text) * 0.9)], "the prompt ROMEO: must be known from the training split"
    assert not re.search(r"[*_\[\]#\\]|\n\n\n| \n", text)


@pytest.mark.parametrize(("path", "isolated"), [("/", True), ("/sub/path/", False)])
def test_the_server_is_like_a_static_host(tmp_path, path, isolated):
    (tmp_path / "index.html").write_text("<p>hello")
    (tmp_path / "ui").mkdir()
    (tmp_path / "ui" / "a.mjs").write_text("1")
    (tmp_path / "b.wasm").write_bytes(b"\0asm")
    with serve.Server(tmp_path, path=path, isolated=isolated) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def get(name):
            try:
                return urllib.request.urlopen(server.url + name, timeout=10)
            except urllib.error.HTTPError as error:
                return error

        page = get("")
        assert page.read() == b"<p>hello" and page.url.endswith(path)
        for header, value in serve.ISOLATION.items():
            assert page.headers[header] == (value if isolated else None)
        assert get("ui/a.mjs").headers["content-type"] == "text/javascript"
        assert get("b.wasm").headers["content-type"] == "application/wasm"
        assert get("ui/").status == 404, "no host lists folders"
        assert get("../secret").status == 404
        if path != "/":
            outside = server.url.removesuffix(path) + "/"
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(outside, timeout=10)
        server.shutdown()


@built
def test_the_list_for_the_service_worker_is_the_site():
    entries = json.loads((paths.DIST / "precache.json").read_text())
    names = [entry["url"] for entry in entries]
    assert len(set(names)) == len(names)
    assert set(names) == set(dist.tree(paths.DIST)) - {"precache.json", "sw.js", "_headers"}
    for entry in entries:
        data = (paths.DIST / entry["url"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"]), entry["url"]
    tiers = [entry["tier"] for entry in entries]
    assert tiers == sorted(tiers, key=["shell", "runtime"].index)
    assert sum(entry["bytes"] for entry in entries if entry["tier"] == "shell") < 2_500_000


@built
def test_pyodides_lock_names_only_files_that_are_there():
    folder = paths.DIST / runtime.name()
    packages = json.loads((folder / "pyodide-lock.json").read_text())["packages"]
    assert set(packages) == {*runtime.PACKAGES, *runtime.PURE}
    for entry in packages.values():
        assert hashlib.sha256((folder / entry["file_name"]).read_bytes()).hexdigest() == entry["sha256"]
        assert set(entry["depends"]) <= set(packages)


def test_a_pure_wheel_in_the_lock_is_the_one_the_tests_install():
    """One pin for the tab and one for the machine: they must be of one version and one hash."""
    locked = (paths.REPO / "tools" / "requirements.txt").read_text()
    for key in runtime.PURE:
        entry = runtime.pure(key)
        block = re.search(rf"^{key}=={re.escape(entry['version'])} (.*?)(?=^\S|\Z)", locked, re.M | re.S)
        assert block and entry["sha256"] in block[1], key
        assert set(entry) == {
            "name", "version", "file_name", "sha256", "install_dir", "package_type", "imports", "depends", "unvendored_tests"
        }  # fmt: skip


@built
def test_the_licences_name_every_part():
    text = (paths.DIST / "licences.txt").read_text()
    assert all(re.search(rf"^{key} \d", text, re.M) for key in (*runtime.PACKAGES, *runtime.PURE))


def test_the_package_zip_is_the_same_each_time_and_has_no_corpus():
    first = dist.package_zip()
    assert first == dist.package_zip()
    assert b"posttrainllm/configs/presets.json" in first and b"shakespeare.txt" not in first


def shaders() -> set[str]:
    return {f"posttrainllm/shaders/{file.name}" for file in (paths.REPO / "shaders").glob("*.wgsl")}


def test_the_package_zip_has_the_shaders():
    with zipfile.ZipFile(io.BytesIO(dist.package_zip())) as archive:
        assert len(shaders()) > 20 and shaders() <= set(archive.namelist())


@built
def test_the_sites_package_keeps_them_beside_its_bytecode():
    with zipfile.ZipFile(paths.DIST / "posttrainllm.zip") as archive:
        names = set(archive.namelist())
        assert shaders() <= names
        assert any(name.startswith("posttrainllm/__pycache__/") for name in names)
        text = archive.read("posttrainllm/shaders/add.wgsl")
    assert text == (paths.REPO / "shaders" / "add.wgsl").read_bytes()


def test_the_wheel_takes_the_shaders_and_finds_them(tmp_path, monkeypatch):
    """Where the settings of the wheel put them is where the package looks, before it looks at the top of a clone."""
    settings = tomllib.loads((paths.REPO / "pyproject.toml").read_text())["tool"]["scikit-build"]
    for target, source in settings["wheel"]["packages"].items():
        shutil.copytree(paths.REPO / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(shader, "__file__", str(tmp_path / "posttrainllm/backends/gpu/shader.py"))
    assert shader.folder() == tmp_path / "posttrainllm/shaders"
    assert (shader.folder() / "add.wgsl").is_file()


def test_every_download_is_pinned():
    pins = downloads.pins()
    assert all(re.fullmatch(r"sha512-[\w+/]{86}==", pin["integrity"]) for pin in pins["npm"].values())
    assert all(re.fullmatch(r"[0-9a-f]{64}", pin["sha256"]) for pin in pins["wheels"].values())
    for file in (paths.REPO / "tools").glob("requirements*.txt"):
        for block in re.split(r"\n(?=\S)", file.read_text().strip()):
            assert re.match(r"[\w.-]+==\S+", block) and "--hash=sha256:" in block, f"{file.name}: {block[:60]}"


def test_a_package_with_other_bytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTTRAINLLM_CACHE", str(tmp_path))
    monkeypatch.setattr(downloads, "pins", lambda: {"npm": {"toy": {"version": "1", "integrity": "sha512-other"}}})
    monkeypatch.setattr(downloads, "npm", lambda: [sys.executable, str(tmp_path / "npm.py")])
    (tmp_path / "npm.py").write_text(
        "import sys, pathlib\npathlib.Path(sys.argv[4].split('=')[1], 'a.tgz').write_bytes(b'x')"
    )
    with pytest.raises(shell.BuildError, match="not sha512-other"):
        downloads.package("toy")
    assert not list((tmp_path / "downloads").iterdir())


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_no_committed_file_names_a_registry():
    hosts = "|".join(["registry" + r"\.npm", "pythonhosted" + r"\.org", "pypi" + r"\.org", r"deb\.debian" + r"\.org"])
    command = ["git", "grep", "-nIiE", hosts, "--", ".", ":!docs/learn"]
    found = subprocess.run(command, cwd=paths.REPO, capture_output=True, text=True)
    if found.returncode == 128:
        pytest.skip("not a git clone")
    assert found.stdout == ""


def test_the_linker_exports_the_whole_c_abi():
    header = "".join((paths.REPO / "ext" / name).read_text() for name in ("engine.h", "bpe.h"))
    declared = {f"_{name}" for name in re.findall(r"\bptl_\w+(?=\()", re.sub(r"//.*", "", header))}
    assert set(engine.exports().split("=", 1)[1].split(",")) == declared | {"_malloc", "_free"}


@pytest.mark.skipif(not (emscripten.ready().exists() or emscripten.on_path()), reason="no Emscripten here")
@pytest.mark.parametrize("copy", ["0", "1"], ids=["mounted", "copied"])
def test_emcc_compiles_where_it_is_called(tmp_path, copy):
    (tmp_path / "a.cpp").write_text('extern "C" __attribute__((used)) int twice(int a) { return 2 * a; }')
    command = ["bash", str(paths.REPO / "tools" / "emcc.sh"), "-c", "a.cpp", "-o", "a.o"]
    environment = {
        "PTL_EMCC_COPY": copy,
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "POSTTRAINLLM_CACHE": str(paths.cache()),
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.o").read_bytes()[:4] == b"\0asm"
    assert (
        subprocess.run([*command[:3], "missing.cpp"], cwd=tmp_path, env=environment, capture_output=True).returncode
        != 0
    )


def test_a_second_build_waits_for_the_first(tmp_path):
    script = "from tools import lock\nwith lock.held('t'): print('in', flush=True); input()"
    options = {"cwd": paths.REPO, "text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environment = {"POSTTRAINLLM_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"}
    first = subprocess.Popen([sys.executable, "-c", script], env=environment, **options)
    assert first.stdout.readline() == "in\n"
    second = subprocess.Popen([sys.executable, "-c", script], env=environment, **options)
    assert "waiting" in second.stdout.readline()
    first.communicate("\n")
    assert second.communicate("\n")[0] == "in\n"
    assert (first.returncode, second.returncode) == (0, 0)


def test_the_kinds_of_tests_come_first_and_pytest_gets_the_rest():
    assert check.split(["native", "browser", "-k", "native"]) == (["native", "browser"], ["-k", "native"])
    assert check.split(["large", "-x"]) == (["large"], ["-x"])
    assert check.split(["-x"]) == (["native", "pyodide", "browser"], ["-x"])


def test_each_kind_installs_what_it_runs_on():
    wanted = {
        "native": [check.vulkan, check.test_peers, fuzz.need],
        "pyodide": [check.browser],
        "browser": [check.test_peers, check.firefox, check.browser],
        "endurance": [fuzz.need, fuzz.python, check.browser],
    }
    for kind, actions in wanted.items():
        assert [action for _, action in check.steps([kind])] == actions
    assert [action for _, action in check.steps([])] == [check.vulkan, check.test_peers, fuzz.need, check.firefox, check.browser]


def test_without_apt_no_driver_is_asked_for(monkeypatch):
    monkeypatch.setattr(check.debian, "has_apt", lambda: False)
    monkeypatch.setattr(check.debian, "need", lambda *names: pytest.fail(f"asked for {names}"))
    assert check.vulkan() is False


def test_a_failing_command_shows_its_last_lines(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTTRAINLLM_CACHE", str(tmp_path))
    with pytest.raises(shell.BuildError, match=r"(?s)code 3.*the reason"):
        shell.run([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], "toy")


def test_the_stamp_of_the_package_follows_its_sources():
    sources = venv.native_sources()
    assert sources and venv.digest(*sources) == venv.digest(*reversed(sources)) != venv.digest(*sources[1:])


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_build_sh_explains_itself():
    done = subprocess.run(["bash", "build.sh"], cwd=paths.REPO, capture_output=True, text=True)
    assert done.returncode == 0
    for command in ("setup", "build", "serve", "test", "bench", "train", "clean"):
        assert re.search(rf"^  {command}\b", done.stdout, re.M)
    assert subprocess.run(["bash", "build.sh", "nonsense"], cwd=paths.REPO, capture_output=True).returncode == 2


def test_the_page_is_put_together_of_its_parts():
    page = dist.app()["index.html"]
    assert b"<!-- part:" not in page and b'id="view-tune"' in page and b'id="tune-start"' in page
    assert not any(name.startswith("parts/") for name in dist.app())


def test_the_peers_without_cuda_are_those_with_it_but_for_torchs_build():
    whole, light = ((paths.REPO / "tools" / f"requirements-{name}.txt").read_text() for name in ("peers", "peers-cpu"))
    assert lock_requirements.without_cuda(whole) == light
    assert "torch==2.13.0+cpu" in light and not re.search(r"^(nvidia|cuda|triton)", light, re.M)


def test_tests_go_without_peers_that_cannot_be_installed(monkeypatch, capsys):
    def refuse(*names):
        raise shell.BuildError("no such wheel")

    monkeypatch.setattr(venv, "extra", refuse)
    assert check.test_peers() and "no such wheel" in capsys.readouterr().out
    with pytest.raises(shell.BuildError):
        check.peers()
