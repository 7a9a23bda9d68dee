# Unknown names, wrong kinds of names, repeated and missing things.
job "names" {                 # want: Missing required argument
  comand  = ["python"]        # want: Unsupported argument
  workdir = "a"
  workdir = "b"               # want: Attribute redefined
  ranks   = 4                 # want: Unsupported argument
  env {                       # want: Unsupported block type
    A = 1
  }
  rollback {                  # want: Unsupported block type
    attempts = 3
  }
  speed = "independent"        # want: Unsupported argument
  stop "now" {                # want: Unexpected label
    grace = "1s"
  }
  stop {                      # want: Repeated block
    gracee = "1s"
  }
  logs { shwo = "all" }       # want: Unsupported argument
  ranks { device = [0] }      # want: Unsupported argument
  hosts "ssh" {
    names = ["a", "b"]
    host {                    # want: Missing label
      user = "x"
    }
    host "c" {                # want: Unknown host
      usr = "x"               # want: Unsupported argument
    }
    host "a" {
      ranks { backend = "gloo" } # want: Unsupported argument
    }
    host "A" {                # want: Repeated block
      port = 99999            # want: Invalid number
    }
    host "a[1-2]" {           # want: Unknown host
    }
  }
}
jobs "x" {                    # want: Unsupported block type
}
variable {                    # want: Missing label
}
name = "x"                    # want: Unsupported argument
