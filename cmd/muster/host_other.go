//go:build !linux

package main

// onHost: workers run on Linux hosts only.
func onHost([]string) (status int, ok bool) { return 0, false }
