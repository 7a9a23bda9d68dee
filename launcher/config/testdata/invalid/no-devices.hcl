job "none" {
  command = ["x"]
  python  = "$HOME/bin/python" # warn: Variable in a path
  hosts "local" {}
  ranks {
    per_host      = 2
    devices       = 0
    shared        = true      # warn: Without effect
    min_free      = "70GiB"   # warn: Without effect
    visibility    = "rank"    # warn: Without effect
    device_names  = null
    groups        = { a = 2 } # warn: Without effect
    bind          = "numa"    # warn: Without effect
    equal         = true
  }
}
