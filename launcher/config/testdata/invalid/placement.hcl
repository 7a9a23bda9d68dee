# Wrong values of a ranks block, of python and of plugin, all at once.
job "placement" {
  command = ["x"]
  python  = ""                # want: Invalid path
  hosts "local" {}
  ranks {
    per_host      = 0         # want: Invalid number of ranks
    devices       = 1.5       # want: Invalid devices
    backend       = "ncl"     # want: Invalid value
    shared        = "yes"     # want: Wrong type
    min_free      = "70GB"    # want: Invalid size
    visibility    = "all"     # want: Invalid value
    device_names  = "uid"     # want: Invalid value
    equal         = [true]    # want: Wrong type
    bind          = false     # want: Invalid value
    visiblity     = "host"    # want: Unsupported argument
    groups = {
      tensor   = 1            # want: Invalid group size
      pipeline = "x"          # want: Invalid group size
      "a b"    = 2            # want: Invalid group name
      data     = null         # want: Invalid group size
      big      = 1048577      # want: Invalid group size
      node     = 8
      node     = 4            # want: Repeated group
      six      = 6            # want: Groups do not nest
      four     = 4            # want: Groups do not nest
      (HOME)   = 2            # want: Unknown name
      word     = HOME         # want: Unknown name
    }
  }
  plugin "-x" {               # want: Invalid plugin name
    path   = "bin/prober"     # want: Invalid path
    sha256 = "e3b0"           # want: Invalid checksum
    args   = "--all"          # want: Wrong type
  }
  plugin "y" {                # want: Repeated block
  }
}
