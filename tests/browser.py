"""A page in a browser engine without a screen: what its scripts say, what it drew, a picture.

    python -m tests.browser page.html picture.png 1600 dark "document.title"

prints a JSON object: `result` of the expression, `errors` of scripts, and the `width` of the page.
The engine is that of PyQt6-WebEngine, which runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_HIGH, _PATIENCE = 1000, 60  # pixels, seconds
_ROOT = Path(__file__).resolve().parents[1]
_PLAIN = {
    "QT_QPA_PLATFORM": "offscreen",
    "QTWEBENGINE_DISABLE_SANDBOX": "1",  # containers have none of the system's own
}


def looked_at(
    page: Path, picture: Path, width: int, dark: bool, expression: str = "0"
) -> dict[str, Any]:
    """What a page of so many pixels shows; its picture is written to a file."""
    scheme = "dark" if dark else "light"
    command = [sys.executable, "-m", "tests.browser", str(page), str(picture), str(width), scheme]
    flags = f"--disable-gpu --blink-settings=preferredColorScheme={0 if dark else 1}"
    environment = {**os.environ, **_PLAIN, "QTWEBENGINE_CHROMIUM_FLAGS": flags}
    done = subprocess.run(
        [*command, expression], env=environment, capture_output=True, text=True,
        timeout=2 * _PATIENCE, check=False, cwd=_ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(page: str, picture: str, width: str, scheme: str, expression: str) -> None:
    """Show a page, and leave when its picture is there."""
    from PyQt6.QtCore import QTimer, QUrl
    from PyQt6.QtWebEngineCore import QWebEnginePage
    from PyQt6.QtWebEngineWidgets import QWebEngineView
    from PyQt6.QtWidgets import QApplication

    errors: list[str] = []

    class Page(QWebEnginePage):
        def javaScriptConsoleMessage(self, level: Any, text: str, line: int, source: str) -> None:
            errors.append(f"{line}: {text}")

    app = QApplication(sys.argv[:1])
    view = QWebEngineView()
    shown = Page(view)
    view.setPage(shown)
    view.resize(int(width), _HIGH)

    def leave(found: Any) -> None:
        view.grab().save(picture)
        told = json.dumps({"result": found[0], "width": found[1], "errors": errors})
        print(told, flush=True)
        app.exit(0)

    def measure() -> None:
        shown.runJavaScript(f"[{expression}, document.documentElement.scrollWidth]", leave)

    def loaded(well: bool) -> None:
        if not well:
            app.exit(1)
        QTimer.singleShot(500, measure)  # until it is drawn

    shown.loadFinished.connect(loaded)
    QTimer.singleShot(1000 * _PATIENCE, lambda: app.exit(2))
    shown.load(QUrl.fromLocalFile(str(Path(page).resolve())))
    view.show()
    sys.exit(app.exec())


if __name__ == "__main__":
    main(*sys.argv[1:])
