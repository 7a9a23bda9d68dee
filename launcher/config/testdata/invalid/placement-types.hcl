job "types" {
  command = ["x"]
  python  = "python3 -X dev"  # want: Invalid path
  hosts "ssh" {
    names = ["a", "b"]
    host "a" {
      ranks { groups = { tensor = 2 } } # want: Unsupported argument
    }
    host "b" {
      ranks { shared = true } # want: Unsupported argument
    }
  }
  ranks {
    min_free = 70             # want: Wrong type
    groups   = 4              # want: Wrong type
  }
  plugin {                    # want: Missing label | Missing required argument
    sha256 = null             # want: Missing required argument
    args   = ["a", null]      # want: Wrong type
  }
}
