package e2e_test

// difference is something that this server does in another way than the real one, and why. The documentation of the
// package says the same, word for word.
type difference struct {
	name, reason string
	steps        []string // scenario/step
	unlessStrict []string // those of them that a server with Options.Strict answers like the real one
}

var differences = []difference{
	{
		name: "Namespaces",
		reason: "without Strict, objects need no existing namespace. A namespace that is being deleted accepts no " +
			"new objects.",
		steps: []string{
			"namespaces/in one that is not there",
			"namespaces/thing in one that is not there",
		},
		unlessStrict: []string{
			"namespaces/in one that is not there",
			"namespaces/thing in one that is not there",
		},
	},
	{
		name: "Content of built-in kinds",
		reason: "without Strict, the server sets no defaults and does not check a spec. It checks names, metadata, " +
			"and the data of ConfigMaps, Secrets and Leases. With Strict it sets defaults, and checks only the " +
			"rules that clients break most often.",
		steps: []string{
			"pods/minimal",
			"pods/no containers",
			"status of a pod/immutable",
			"deployments/minimal",
		},
		unlessStrict: []string{
			"pods/minimal",
			"pods/no containers",
			"status of a pod/immutable",
			"deployments/minimal",
		},
	},
	{
		name: "Subresources",
		reason: "the server has status, the finalize of namespaces, the token of service accounts, the binding of " +
			"pods, and the scale of definitions and, with Strict, of workloads. Tests add others with Respond.",
		steps: []string{
			"pods/eviction",
			"pods/evicted",
			"deployments/scale",
			"deployments/scaled",
		},
		unlessStrict: []string{
			"deployments/scale",
			"deployments/scaled",
		},
	},
	{
		name:   "Tables and YAML",
		reason: "the server returns neither. Table returns a table to a client that did not request one.",
		steps: []string{
			"accept/table",
			"accept/table of things",
			"accept/table or JSON",
			"accept/yaml",
			"accept/watch as a table",
		},
	},
	{
		name: "Order at version 0",
		reason: "a watch that begins with any state sends the objects in descending order of their names. A real " +
			"server guarantees no order.",
		steps: []string{
			"bookmarks/both",
		},
	},
	{
		name: "Owner references",
		reason: "an error names the field as in the version of Kubernetes that this module is built with, which may " +
			"be newer than the server.",
		steps: []string{
			"create with metadata/owner without uid",
			"create with metadata/owner with empty uid",
			"create with metadata/owner is an event",
		},
	},
	{
		name: "Owners across versions",
		reason: "a write through another version of a custom resource keeps the managedFields of the first version. " +
			"A real server drops them until the next apply.",
		steps: []string{
			"versions of a custom resource/patch in the other",
			"versions of a custom resource/read",
			"versions of a custom resource/list of the other",
			"versions of a custom resource/apply in the other",
			"versions of a custom resource/apply",
			"versions of a custom resource/events of the other",
		},
	},
}
