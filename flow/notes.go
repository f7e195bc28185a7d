package flow

// led returns the error that led to the step. Only the worker that runs the fiber may call it.
func (x *extra) led() error {
	if x == nil || x.notes == nil {
		return nil
	}
	return x.notes.led
}

// annotate changes the notes of f.
func annotate(f *fiber, change func(*notes)) {
	x := f.ext()
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	if x.notes == nil {
		x.notes = &notes{}
	}
	change(x.notes)
}

// noteRetry records an error after which the step is retried.
func noteRetry(f *fiber, err error, now int64) {
	annotate(f, func(n *notes) {
		if n.err = err; n.since == 0 {
			n.since = now
		}
	})
}

// clearNotes drops the notes of the previous run. If the same step runs again, its error remains.
func clearNotes(f *fiber, again bool) {
	x := f.x.Load()
	if x == nil || x.notes == nil { // only the worker that runs the fiber writes notes
		return
	}
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	if !again {
		x.notes.err, x.notes.since = nil, 0
	}
	if x.notes.causes = nil; x.notes.err == nil && x.notes.led == nil {
		x.notes = nil
	}
}

// noteOutcome records the outcome of a step that has returned or was cancelled. began is when the step began.
// noteOutcome returns the current time.
func noteOutcome(f *fiber, outcome op, began int64) (now int64) {
	now = f.e.time.now()
	took := now - began
	f.progress.note(outcome, took, now)
	f.flow.steps[f.progress.pc].observe(outcome, took)
	return now
}
