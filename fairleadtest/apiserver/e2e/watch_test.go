package e2e_test

// watchScenarios: streams of events.
func watchScenarios() []scenario {
	const initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	seeds := func(more ...step) []step {
		return append([]step{
			post("seed a", things, thingOf(`"name":"a","labels":{"l":"1"}`, `,"spec":{"n":1}`)),
			post("seed b", things, thingOf(`"name":"b"`, ``)),
			merge("changed a", things+"/a", `{"spec":{"n":2}}`),
		}, more...)
	}
	change := func(more ...step) []step {
		return append([]step{
			merge("changed b", things+"/b", `{"spec":{"n":3}}`),
			post("seed c", things, thingOf(`"name":"c","labels":{"l":"1"}`, ``)),
			merge("c leaves", things+"/c", `{"metadata":{"labels":{"l":"2"}},"spec":{"n":4}}`),
			merge("c outside", things+"/c", `{"spec":{"n":5}}`),
			merge("c enters", things+"/c", `{"metadata":{"labels":{"l":"1"}}}`),
			remove("c deleted", things+"/c", ``),
			remove("b deleted", things+"/b", ``),
			merge("last change of a", things+"/a", `{"spec":{"n":6}}`),
		}, more...)
	}
	both := func(a []step, b []step) []step { return append(a, b...) }
	// What source asks with for metadata, as client-go's metadata client does. Events are compared as JSON.
	as := func(kind string) (all, json string) {
		as := ";as=" + kind + ";g=meta.k8s.io;v=v1"
		json = "application/json" + as + ",application/json"
		return "application/vnd.kubernetes.protobuf" + as + "," + json, json
	}
	one, metadata := as("PartialObjectMetadata")
	list, pages := as("PartialObjectMetadataList")
	return []scenario{
		{"metadata", both(seeds(
			post("map seed", cms, cm(`"name":"a","labels":{"l":"1"}`, `,"data":{"k":"v"}`)),
			get("settled", things),
			get("settled maps", cms+"?fieldSelector=metadata.name%3Da"),
			get("list", things).with("Accept", list),
			get("list of maps", cms+"?fieldSelector=metadata.name%3Da").with("Accept", list),
			get("any version", things+"?resourceVersion=0").with("Accept", list),
			get("first page", things+"?limit=1").with("Accept", pages),
			get("second page", things+"?limit=1&continue={first page.continue}").with("Accept", pages),
			get("list as one", things).with("Accept", one),
			get("one", things+"/a").with("Accept", one),
			watchStep("watch", things+"?watch=1&resourceVersion={changed a.rv}").with("Accept", metadata),
			watchStep("watch by labels", things+"?watch=1&labelSelector=l%3D1&resourceVersion={changed a.rv}").with("Accept",
				metadata),
			watchStep("initial", things+"?watch=1"+initial).with("Accept", metadata),
			watchStep("initial maps", cms+"?watch=1&fieldSelector=metadata.name%3Da"+initial).with("Accept", metadata),
			watchStep("none at first", things+"?watch=1&labelSelector=l%3D7"+initial).with("Accept", metadata),
			watchStep("in protobuf", things+"?watch=1&resourceVersion={changed a.rv}").with("Accept", one),
			watchStep("expired", things+"?watch=1&resourceVersion=1").with("Accept", metadata),
			events("initial of all", "initial", 3),
			events("initial of maps", "initial maps", 2),
			events("initial of none", "none at first", 1),
		), change(
			merge("map changed", cms+"/a", `{"data":{"k":"w"}}`),
			remove("map deleted", cms+"/a", ``),
			events("changes", "watch", 8),
			events("changes by labels", "watch by labels", 5),
			events("changes after the initial ones", "initial", 8),
			events("changes of maps", "initial maps", 2),
		))},
		{"watch", both(seeds(
			watchStep("absent", things+"?watch=1"),
			watchStep("version", things+"?watch=1&resourceVersion={seed b.rv}"),
			watchStep("all the way", things+"?watch=1&resourceVersion={seed a.rv}"),
			watchStep("labels", things+"?watch=true&labelSelector=l%3D1&resourceVersion={changed a.rv}"),
			watchStep("name", things+"?watch=1&fieldSelector=metadata.name%3Db&resourceVersion={changed a.rv}"),
			watchStep("all namespaces",
				"/apis/compare.fairlead.io/v1/things?watch=1&fieldSelector=metadata.namespace%3D{ns}&resourceVersion={changed "+
					"a.rv}"),
			get("one by path", things+"/b?watch=1&resourceVersion={changed a.rv}"),
			get("missing one by path", things+"/none?watch=1&resourceVersion={changed a.rv}&timeoutSeconds=1"),
			watchStep("old path", "/apis/compare.fairlead.io/v1/watch/namespaces/{ns}/things?resourceVersion={changed a.rv}"),
		), change(
			events("since version", "version", 9),
			events("since the first", "all the way", 10),
			events("by labels", "labels", 5),
			events("by name", "name", 2),
			events("of all namespaces", "all namespaces", 8),
			events("at the old path", "old path", 8),
		))},
		{"watch from any state", both([]step{
			post("seed", things, thingOf(`"name":"a","labels":{"l":"1"}`, ``)),
			get("settled", things),
			watchStep("absent", things+"?watch=1"),
			watchStep("any", things+"?watch=1&resourceVersion=0"),
			watchStep("any by labels", things+"?watch=1&resourceVersion=0&labelSelector=l%3D1"),
			events("begins", "absent", 1),
			events("any begins", "any", 1),
			events("by labels begins", "any by labels", 1),
			post("seed b", things, thingOf(`"name":"b"`, ``)),
		}, change(
			events("goes on", "absent", 9),
			events("any goes on", "any", 9),
			events("by labels goes on", "any by labels", 5),
		))},
		{"watch list", []step{
			post("seed", things, thingOf(`"name":"a","labels":{"l":"1"}`, ``)),
			get("settled", things),
			watchStep("absent", things+"?watch=1"+initial),
			watchStep("any", things+"?watch=1&resourceVersion=0"+initial),
			watchStep("at a version", things+"?watch=1&resourceVersion={seed.rv}"+initial),
			watchStep("none by labels", things+"?watch=1&labelSelector=l%3D2"+initial),
			watchStep("without bookmarks", things+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
			watchStep("no initial events", things+
				"?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={seed.rv}"),
			watchStep("no initial events, absent", things+"?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
			events("absent: initial", "absent", 2),
			events("any: initial", "any", 2),
			events("at a version: initial", "at a version", 2),
			events("none by labels: initial", "none by labels", 1),
			events("without bookmarks: initial", "without bookmarks", 1),
			merge("changed", things+"/a", `{"metadata":{"labels":{"l":"2"}}}`),
			events("absent: on", "absent", 1),
			events("any: on", "any", 1),
			events("at a version: on", "at a version", 1),
			events("none by labels: on", "none by labels", 1),
			events("without bookmarks: on", "without bookmarks", 1),
			events("no initial events: on", "no initial events", 1),
			events("no initial events, absent: on", "no initial events, absent", 1),
		}},
		{"refused watches", []step{
			watchStep("no match", things+"?watch=1&sendInitialEvents=true&timeoutSeconds=1"),
			watchStep("wrong match", things+"?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&timeoutSeconds=1"),
			watchStep("match alone", things+"?watch=1&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"),
			watchStep("odd match", things+"?watch=1&resourceVersionMatch=Odd&timeoutSeconds=1"),
			watchStep("odd initial events", things+
				"?watch=1&sendInitialEvents=odd&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"),
			watchStep("odd version", things+"?watch=1&resourceVersion=odd&timeoutSeconds=1"),
			watchStep("negative version", things+"?watch=1&resourceVersion=-1&timeoutSeconds=1"),
			watchStep("odd labels", things+"?watch=1&labelSelector=l%3D%3D%3D&timeoutSeconds=1"),
			watchStep("odd fields", things+"?watch=1&fieldSelector=spec.n%3D1&timeoutSeconds=1"),
			watchStep("odd timeout", things+"?watch=1&timeoutSeconds=odd"),
			watchStep("negative timeout", things+"?watch=1&timeoutSeconds=-1"),
			watchStep("odd bookmarks", things+"?watch=1&allowWatchBookmarks=odd&timeoutSeconds=1"),
			watchStep("initial events of the future", things+"?watch=1&timeoutSeconds=8&resourceVersion=9000000000"+initial),
			events("end of the initial events of the future", "initial events of the future", -1),
			watchStep("missing resource", core+"unknowns?watch=1"),
			watchStep("limit", things+"?watch=1&limit=odd&timeoutSeconds=1"),
			events("end of limit", "limit", -1),
		}},
		{"ends of watches", []step{
			post("seed", things, thingOf(named, ``)),
			watchStep("timeout", things+"?watch=1&timeoutSeconds=1&resourceVersion={seed.rv}"),
			events("its end", "timeout", -1),
			watchStep("timeout after events", things+"?watch=1&timeoutSeconds=3&allowWatchBookmarks=true"),
			events("its events", "timeout after events", -1),
			watchStep("the future", things+"?watch=1&resourceVersion=9000000000&timeoutSeconds=1"),
			merge("changed", things+"/a", `{"spec":{"n":1}}`),
			events("silence", "the future", -1),
		}},
		{"bookmarks", []step{
			post("seed", things, thingOf(named, ``)),
			get("settled at first", things),
			watchStep("absent", things+"?watch=1&allowWatchBookmarks=true"),
			watchStep("any", things+"?watch=1&allowWatchBookmarks=true&resourceVersion=0"),
			watchStep("at a version", things+"?watch=1&allowWatchBookmarks=true&resourceVersion={seed.rv}"),
			events("absent begins", "absent", 2),
			events("any begins", "any", 2),
			merge("changed", things+"/a", `{"spec":{"n":1}}`),
			events("absent goes on", "absent", 1),
			events("any goes on", "any", 1),
			events("at a version goes on", "at a version", 1),
			post("another", things, thingOf(`"name":"b"`, ``)),
			get("settled", things+"?resourceVersion={another.rv}"),
			watchStep("order at any version", things+"?watch=1&resourceVersion=0"),
			events("both", "order at any version", 2),
		}},
		{"watch of pods", []step{
			post("seed", core+"pods", podBody(`"name":"a"`, ``)),
			watchStep("by node", core+"pods?watch=1&fieldSelector=spec.nodeName%3Dn1&resourceVersion={seed.rv}"),
			watchStep("by phase", core+"pods?watch=1&fieldSelector=status.phase%3DPending&resourceVersion={seed.rv}"),
			watchStep("all", core+"pods?watch=1&resourceVersion={seed.rv}"),
			post("bound", core+"pods", podBody(`"name":"b"`, `,"nodeName":"n1"`)),
			merge("runs", core+"pods/b/status", `{"status":{"phase":"Running"}}`),
			remove("marked", core+"pods/b", ``),
			remove("deleted", core+"pods/b?gracePeriodSeconds=0", ``),
			remove("the other", core+"pods/a", ``),
			events("of the node", "by node", 5),
			events("of the phase", "by phase", 4),
			events("of all", "all", 7),
		}},
	}
}

// compactionScenario: what is answered about a past that is forgotten.
func compactionScenario() scenario {
	const initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	return scenario{"compaction", []step{
		post("seed a", things, thingOf(`"name":"a"`, ``)),
		post("seed b", things, thingOf(`"name":"b"`, ``)),
		post("seed c", things, thingOf(`"name":"c"`, ``)),
		get("first page", things+"?limit=1"),
		merge("changed", things+"/b", `{"spec":{"n":1}}`),
		remove("deleted", things+"/c", ``),
		post("another", things, thingOf(`"name":"d"`, ``)),
		{name: "compact", compact: true},
		get("second page", things+"?limit=1&continue={first page.continue}"),
		get("the rest, of another state", things+"?continue={second page.continue}"),
		get("a page of the rest", things+"?limit=1&continue={second page.continue}"),
		get("exactly then", things+"?resourceVersion={seed b.rv}&resourceVersionMatch=Exact"),
		get("exactly then, a page", things+"?limit=1&resourceVersion={seed b.rv}&resourceVersionMatch=Exact"),
		get("a page at that time", things+"?limit=1&resourceVersion={seed b.rv}"),
		get("not older than then", things+"?resourceVersion={seed b.rv}&resourceVersionMatch=NotOlderThan"),
		get("one as of then", things+"/a?resourceVersion={seed b.rv}"),
		watchStep("watch since then", things+"?watch=1&resourceVersion={seed b.rv}&timeoutSeconds=5"),
		events("its end", "watch since then", -1),
		watchStep("watch since then, with bookmarks",
			things+"?watch=1&resourceVersion={seed b.rv}&timeoutSeconds=5&allowWatchBookmarks=true"),
		events("the end of that", "watch since then, with bookmarks", -1),
		watchStep("watch list since then", things+"?watch=1&resourceVersion={seed b.rv}"+initial),
		events("begins with the present", "watch list since then", 4),
		merge("changed again", things+"/a", `{"spec":{"n":1}}`),
		events("goes on", "watch list since then", 1),
	}}
}
