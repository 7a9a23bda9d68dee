# One rank for each AMD GPU of this machine. Muster does not know these devices itself: a
# plugin, a program of the site's own, looks at them and says how a process is told which
# of them are its. The one in examples/plugin-rocm is such a program; sha256sum prints the
# sum of what was built.
job "rocm" {
  command = ["python3", "-c", "import os; print(os.environ['RANK'], os.environ['HIP_VISIBLE_DEVICES'])"]

  plugin "rocm" {
    path   = "/opt/site/bin/muster-plugin-rocm"
    sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
    args   = []
  }

  hosts "local" {}
}
