"""Files are damaged in many ways, and each way is a different one."""

import json

from ninfer.testing.damage import damages_of


def damaged(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    found = {}
    for name, do_damage in damages_of(path):
        do_damage()
        if path.is_dir():
            path.rmdir()
            found[name] = None
        else:
            found[name] = path.read_bytes()
    return found


def test_every_damage_changes_the_file(tmp_path):
    content = b"0123456789"
    found = damaged(tmp_path, content)
    assert content not in found.values()
    assert found["emptied"] == b""
    assert found["cut in the middle"] == b"01234"
    assert found["replaced by a folder"] is None
    assert found["with a byte flipped"] == b"01234u6789"


def test_numbers_of_json_are_replaced_one_at_a_time(tmp_path):
    found = damaged(tmp_path, b'{"a": [1, {"b": 2.5, "c": true}], "d": "3"}')
    assert json.loads(found["with number 0 replaced by -1"]) == {
        "a": [-1, {"b": 2.5, "c": True}],
        "d": "3",
    }
    assert json.loads(found["with number 1 replaced by None"])["a"][1] == {"b": None, "c": True}
    assert not any(name.startswith("with number 2 ") for name in found)
