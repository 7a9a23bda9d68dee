job "sweep" {
  command = ["python", "small.py"]
  mode    = "independent"
  hosts "local" {}
  tasks_file = "tasks.txt"      # want: Tasks not read
}
