// Package coordinator is the brain of a run. It runs on the head host beside the
// agent, evaluates and plans the job, tells the agents what to do and decides after
// each thing that happens. Deciding is apart from doing: the brain is a state that
// turns what happened into actions and reasons, without clock or network; one loop
// carries them out. It knows nothing of SSH or terminals.
package coordinator
