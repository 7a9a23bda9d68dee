// Package samples keeps how much memory and time of its devices each rank has used over a
// run: compactly, for runs of weeks, and readable after them. Seconds are counted while the
// machine is awake, from when sampling began, so that a suspended laptop leaves no gap that
// looks like a plateau.
//
// A Recorder takes in a sample about once a second and keeps the smallest, largest and mean
// value of each second, minute and hour as lines of JSON, in a folder of bounded size. Read
// reads it. Growing and Imbalance judge what was kept; they are pure.
//
// The package knows neither who measures nor who is told. It starts no goroutines.
package samples
