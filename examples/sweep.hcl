# Eight short tasks on this machine, three at a time; one of them fails at first.
job "sweep" {
  command = ["sh", "-c", "sleep 0.3; echo task $MUSTER_RANK with $*; [ $MUSTER_RANK$MUSTER_ATTEMPT != 50 ]", "sh"]
  mode    = "independent"

  hosts "local" {}
  ranks {
    per_host = 3
    devices  = "none" # otherwise each place has a GPU of its own, where there are any
  }
  tasks = [for seed in range(8) : ["--seed", seed]]

  restart {
    attempts = 1
    on "exit" { attempts = 1 }
  }
}
