package config

import "time"

// insteadGrace is how long what runs instead of the command has to end.
const insteadGrace = 2 * time.Second

// instead makes the job one that runs another command in the same place: hosts, ranks,
// devices, setup and environment stay; what is about the command itself does not hold.
func (j *Job) instead(command []string) {
	if len(command) == 0 {
		return
	}
	j.Command, j.Program = command, ""
	j.Restart, j.Progress = nil, Progress{}
	j.Stop = Stop{Grace: insteadGrace, Signal: defaultSignal}
	j.Logs = Logs{}
}
