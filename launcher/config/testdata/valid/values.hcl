job "values" {
  command = [
    "prog", "", "a b", "--a=x y", "a\"b", "it's", "$HOME", "`id`", "*", "new\nline", "tab\t", "--", "é 漢",
    1e-5, 1.0, 10000000000, -1e-5, -2, true, false, "null", 0.1 + 0.2, 1 / 3, 2 * 3, "${1e-5}", "x=${1.50}",
    jsonencode({ a = [1, "q\"q"], b = "é" }), "$$", "$(date)", "$${X:-y}", "%%{http_code}", "%n %h", "100%",
    9007199254740993, "{\"nested\": \"\\\"quotes\\\" é\"}",
  ]
  hosts "local" {}
  env = {
    JSON  = "{\"a\": \"q\\\"q\", \"é\": [1]}"
    SMALL = 1e-5
    ONE   = 1.0
    BIG   = 10000000000
    YES   = true
    NO    = false
    NONE  = null
    P     = "64(x2)"
    S     = "a;b"
    N     = "l1\nl2"
    Q     = "\"q\" 's'"
    D     = "$HOME"
    E     = ""
    EQ    = "k=v=w"
    B     = "back\\slash"
    SHELL_DEFAULT = "$${X:-y}"
    HALF  = rank.world_size / 32
    PICK  = ["a", "b"][rank.global % 2]
    TIE   = rank.global == 0 ? "first" : "other"
    DOC   = <<EOT
line $(date) $1
EOT
  }
  logs { show = [0, "2-3"] }
}
