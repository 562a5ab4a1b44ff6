"""amux called so that a test sees what it loads, or so that click reads its arguments in any case."""

LOADED = """
import os, sys
leave = os._exit
def tell(code):
    print(*sys.modules, file=sys.stderr)
    leave(code)
os._exit = tell
from amuxd.cli import main
main()
"""
WITH_CLICK = """
import sys
from amuxd.cli import app, way_out
way_out.leave(way_out.run(app.command(sys.argv[1:])))
"""
