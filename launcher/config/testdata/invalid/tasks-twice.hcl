job "sweep" {
  command = ["python", "small.py"]
  mode    = "independent"
  hosts "local" {}
  tasks      = ["a"]
  tasks_file = "tasks.txt"      # want: Tasks twice
}
