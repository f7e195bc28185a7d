package worker

import "strings"

// obstacles are the known reasons for which a subject does not work in a bubble, with the line that the user writes.
var obstacles = []struct{ sign, advice string }{
	{
		"already exists. Controller names must be unique",
		"A killed subject is started again in the same process. " +
			"Set Controller: config.Controller{SkipNameValidation: ptr.To(true)} in the options of the manager.",
	},
	{
		"signals.SetupSignalHandler",
		"Call ctrl.SetupSignalHandler in main, and pass the context that Start is given.",
	},
	{
		"internal/poll.(*FD).Accept",
		"The subject listens on a port, and virtual time stands still meanwhile. Set Metrics: " +
			`metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0" or an empty one, and no webhook server.`,
	},
	{
		"net.(*Resolver)",
		"The subject looks up the name of a server outside. Replace it by simulate.External and simulate.Client(ctx).",
	},
	{
		"internal/poll.(*FD).Connect",
		"The subject connects to a server outside. Replace it by simulate.External and simulate.Client(ctx).",
	},
	{
		"tls.crt: no such file or directory",
		"The subject starts a webhook server without certificates. Leave the webhook server out under simulation.",
	},
	{
		"from outside bubble",
		"The subject uses a channel, timer or wait group of package level that an earlier start made. " +
			"Make it in Start.",
	},
	{
		"made no progress",
		"The subject waits for something outside of the simulation, such as a network connection, a file or a process. " +
			"Leave that out in Start, or run the program with simulate.Command.",
	},
}

// isPanic reports whether the end of a child's output is a panic of the subject, and not of package synctest or one for
// a known obstacle.
func isPanic(text string) bool {
	return strings.HasPrefix(text, "panic: ") && !strings.HasPrefix(text, "panic: deadlock: ") && advice(text) == ""
}

// Explain adds what the user can do to a failure that is known. It shortens stacks.
func Explain(text string) string {
	more := advice(text)
	const most = 4000
	if len(text) > most {
		text = text[:most] + "\n…"
	}
	return text + more
}

// advice returns the line about the obstacle that a text shows, or "".
func advice(text string) string {
	for _, o := range obstacles {
		if strings.Contains(text, o.sign) {
			return "\n  " + o.advice
		}
	}
	return ""
}
