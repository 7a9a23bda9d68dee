// Package sampling measures ranks while they run: what their processes use and hold, how busy
// their devices are, and when they have last given a sign of life. It keeps what it measures
// in a file and tells digests of it. It asks for everything and decides nothing.
package sampling
