from amuxd.daemon import main

main()
