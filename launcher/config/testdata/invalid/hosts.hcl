job "hosts" {
  command = ["x"]
  hosts "ssh" {
    names = [
      "gpu[01-",              # want: Invalid host name
      "gpu[3-1]",             # want: Invalid host name
      "gpu[]",                # want: Invalid host name
      "gpu[1-[2-3]]",         # want: Invalid host name
      "gpu]",                 # want: Invalid host name
      "gpu[1-5000]",          # want: Invalid host name
      "a[1-100]b[1-100]",     # want: Invalid host name
      "",                     # want: Invalid host name
      "a,,b",                 # want: Invalid host name
      "-oProxyCommand=x",     # want: Invalid host name
      "-l@host",              # want: Invalid host name
      "gpu 01",               # want: Invalid host name
      "host:0",               # want: Invalid host name
      "host:99999",           # want: Invalid host name
      "host:",                # want: Invalid host name
      "[2001:db8::1]22",      # want: Invalid host name
      "1:2:3",                # want: Invalid host name
      3,                      # want: Wrong type
      null,                   # want: Wrong type
      "same",
      "bob@SAME",             # want: Host listed twice
      "same:22",
      "n[1-3]",
      "n2",                   # want: Host listed twice
    ]
    host "nobody" {
      prot = 22               # want: Unsupported argument
    }
  }
}
