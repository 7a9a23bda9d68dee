job "sweep" {
  command = ["python", "small.py"]
  mode    = "alone"             # want: Invalid value
  hosts "local" {}
  tasks_file = "tasks.txt"      # want: Tasks of one job
}
