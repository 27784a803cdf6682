#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Python package into a new environment, as docs/python.md says, and runs package_test.py, the code of that
# page, the notebook and the example there. What it links at run time is what every Linux has.
#
#   check_package.sh TOOL FOLDER [PYTHON]
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../../.." && pwd)
tool=$(realpath "$1") folder=$2 python=${3:-python3}

rm -rf "$folder"
"$python" -m venv "$folder"
folder=$(realpath "$folder")
if ! "$folder/bin/pip" install -q nbclient ipykernel; then
    echo "SKIPPED: pip installs no packages here"
    exit 77
fi
cd "$folder"
bin/pip install -q "$checkout"

bin/python -c 'import sys; assert "vocabpipe" not in sys.modules; import vocabpipe; print(vocabpipe.__file__)'
libraries=$(ldd lib/python*/site-packages/vocabpipe/_core*.so |
    grep -vE 'linux-vdso|lib(c|m|pthread)\.so|ld-linux' || true)
if [ -n "$libraries" ]; then
    echo "FAILED: the module needs libraries that not every Linux has:" "$libraries"
    exit 1
fi
# Of two C++ libraries in a process, what one shows is taken for the other's.
shown=$(nm --dynamic --defined-only lib/python*/site-packages/vocabpipe/_core*.so | awk '{ print $NF }')
if [ "$shown" != PyInit__core ]; then
    echo "FAILED: the module shows symbols:" $shown
    exit 1
fi
VOCABPIPE_TOOL=$tool bin/python "$checkout/tests/bindings/python/package_test.py"
bin/python - "$checkout/docs/python.md" <<'END'
import re
import sys

with open(sys.argv[1], encoding="utf-8") as page:
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read(), re.DOTALL | re.MULTILINE)
names = {}
run = [exec(block, names) for block in blocks if "vocabpipe.torch" not in block]
assert (names["step"].step, round(names["step"].bubble, 3)) == (516.0, 0.209)
print(f"docs/python.md: {len(run)} blocks ran")
END
bin/python - "$checkout/examples/python/schedules.ipynb" <<'END'
import sys

import nbclient
import nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300).execute()
drawn = [out for cell in notebook.cells for out in cell.get("outputs", []) if "text/html" in out.get("data", {})]
assert len(drawn) == 2, f"{len(drawn)} steps drew themselves instead of 2"
print(f"notebook: {len(notebook.cells)} cells ran")
END
bin/python "$checkout/examples/python/which_schedule.py"
grep -q "1F1B, and the fastest" which_schedule.svg
