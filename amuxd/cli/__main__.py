from amuxd.cli import main

main()
