"""A text that no page may execute."""

from __future__ import annotations

EVIL = '"><img src=x onerror="document.title=1"><script>document.title=2</script>'
