variable "token" {
  default   = ""
  sensitive = true
}
job "host-env" {
  command = ["x", gpu.uuid, env_of_host("HOME")] # want: Not known here | Not known here
  hosts "local" {}
  env = {
    A = env_of_host(rank.local)                  # want: Not known here
    B = env_of_host()                            # want: Invalid function argument
    C = env_of_host("A", "B")                    # want: Invalid function argument
    D = env_of_host("A-B")                       # want: Invalid variable name
    E = [for n in ["A"] : env_of_host(n)][0]     # want: Not known here
    F = env_of_host(env_of_host("A"))            # want: Not known here
    G = env_of_host(var.token)                   # want: Sensitive value
    H = gpu.id                                   # want: Unknown name
    J = append("a", "b", ":", ":")               # want: Invalid function argument
    K = append("a")                              # want: Not enough function arguments
    L = env_of_hots("A")                         # want: Unknown function
    M = append("a", null)                        # want: Invalid function argument
    N = prepend(env_of_host("X"), "y")           # want: Unknown function
  }
}
