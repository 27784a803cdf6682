#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Renders README.md and the pages of docs/ as a site, by docs/mkdocs.yml. Every link must lead to a page, and to a
# heading of it. Needs Debian's packages mkdocs and mkdocs-material.
#
#   docs/site.sh [FOLDER]    build/site, unless FOLDER is given; what was there is replaced
set -euo pipefail
site=$(realpath -m "${1:-$(dirname "$0")/../build/site}")
cd "$(dirname "$0")/.."

command -v mkdocs >/dev/null || {
    echo "site.sh: error: mkdocs is missing; apt-get install mkdocs mkdocs-material" >&2
    exit 1
}
if [ -e "$site" ] && [ ! -e "$site/sitemap.xml" ] && [ -n "$(ls -A "$site")" ]; then
    echo "site.sh: error: $site is not a site; name another folder" >&2
    exit 2
fi
area=$(mktemp -d)
trap 'rm -rf "$area"' EXIT

# The site's pages lie where the repository's top is, README.md as the first of them.
mkdir "$area/pages"
cp docs/mkdocs.yml "$area"
cp -r docs/pictures "$area/pages"
for page in docs/*.md; do
    sed 's#](\.\./README\.md#](index.md#g; s#](\.\./#](#g' "$page" >"$area/pages/${page#docs/}"
done
for folder in docs/*/README.md; do cp -r "${folder%/*}" "$area/pages"; done
sed 's#](docs/#](#g' README.md >"$area/pages/index.md"
# Other files of the repository that pages link to.
{ grep -oh '](\.\./[^)#]*' docs/*.md | cut -c6-; grep -oh '](\(examples\|tests\)/[^)#]*' README.md | cut -c3-; } | sort -u |
    while IFS= read -r file; do
        [ "$file" = README.md ] || install -D -m 644 "$file" "$area/pages/$file"
    done

mkdocs build --strict --config-file "$area/mkdocs.yml" --site-dir "$site"

# mkdocs looks for files alone.
python3 - "$site" <<'END'
import html.parser, pathlib, sys, urllib.parse

site = pathlib.Path(sys.argv[1])


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif (tag, name) in (("a", "href"), ("img", "src")):
                self.links.append(value)


pages = {path: Page(path) for path in site.rglob("*.html")}
links = broken = 0
for path, page in pages.items():
    for link in page.links:
        url = urllib.parse.urlsplit(link)
        if url.scheme or path.name == "404.html":
            continue
        links += 1
        target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
        if target.is_dir():
            target /= "index.html"
        fragment = urllib.parse.unquote(url.fragment)
        if not target.exists() or (fragment and target in pages and fragment not in pages[target].ids):
            broken += 1
            print(f"site.sh: error: {path.relative_to(site)} links to {link}", file=sys.stderr)
print(f"{len(pages)} pages, {links} links, {broken} broken")
sys.exit(1 if broken else 0)
END
echo "open $site/index.html"
