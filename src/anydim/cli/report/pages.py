"""What pages have in common: a frame without scripts, and how they look by day and by night."""

from __future__ import annotations

from collections.abc import Iterable

MONO = "'DejaVu Sans Mono',Menlo,Consolas,monospace"
_STYLE = (
    ":root{color-scheme:light dark;--paper:#fff;--ink:#222;--faint:#555;--line:#ddd;--grid:#e4e4e4}"
    "@media(prefers-color-scheme:dark){"
    ":root{--paper:#1b1e23;--ink:#dcdfe4;--faint:#9aa3ad;--line:#3c424b;--grid:#31363d}}"
    "body{font:14px 'DejaVu Sans',Arial,sans-serif;margin:2em auto;max-width:1240px;"
    "padding:0 20px;color:var(--ink);background:var(--paper)}"
    "h1{font-size:18px}h2{font-size:16px;margin-top:1.8em}"
    f"pre{{font:12px {MONO};overflow-x:auto}}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:3px 10px;border-bottom:1px solid var(--line);text-align:left}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    f"td.f,td.k{{font:12px {MONO};overflow-wrap:anywhere}}td.k{{white-space:nowrap}}"
)


def frame_page(title: str, style: str, body: Iterable[str]) -> str:
    """The whole text of a page; `title` is escaped, as everything in it is."""
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>", f"<style>{_STYLE}{style}</style>", "</head>", "<body>",
        *body, "</body>", "</html>", "",
    ])  # fmt: skip
