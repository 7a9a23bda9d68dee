# var: token=hf_secret
# var: keys={"a": "k-secret"}
# var: port=7
variable "token" {
  description = "of the model hub"
  sensitive   = true
}
variable "keys" {
  default   = {}
  sensitive = true
}
variable "port" {
  default   = null
  sensitive = true
}
variable "plain" {
  default   = "x"
  sensitive = false
}
job "sensitive" {
  command = ["x", var.plain]
  hosts "ssh" {
    names = ["a", "b"]
    host "b" {
      env = { HF_TOKEN = null, ONLY_B = upper(var.token) }
    }
  }
  env = {
    HF_TOKEN = var.token
    URL      = "https://u:${var.token}@h:${var.port}"
    JSON     = jsonencode({ k = var.keys.a, n = rank.global })
    PICK     = rank.global == 0 ? var.token : "none"
    EACH     = join(",", [for k, v in var.keys : "${k}=${v}"])
    KNOWN    = length(split("_", var.token)) > 1
    CUT      = split("_", var.token)[1]
    MAYBE    = coalesce(var.port, var.plain)
    TEXT     = "%{if var.token == ""}none%{else}some%{endif}"
    PLAIN    = var.plain
  }
  forward = ["WANDB_*", "${var.plain}_KEY"]
}
