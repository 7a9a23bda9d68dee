job "sweep" {
  command = ["python", "small.py"]
  mode    = "independent"
  hosts "local" {}
  tasks = []                    # want: No tasks
}
