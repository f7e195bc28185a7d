package main

// A side is a version of an operator: before or after the fix of a bug.
type side int

const (
	before side = iota
	after
)

func (s side) String() string { return [...]string{"before", "after"}[s] }

// Modules that an operator needs in newer versions, to be built with the client-go of package simulate.
const (
	runtime  = "sigs.k8s.io/controller-runtime@v0.25.2"
	genproto = "google.golang.org/genproto@v0.0.0-20240213162025-012b6fc9bca9" // without the packages of newer modules
)

// A pin is a published bug of a public operator.
type pin struct {
	name     string // also of its folder in testdata
	issue    string // where the bug is published
	module   string // path of the operator's module
	versions [2]string
	// requires are further modules at a version, which the module needs in a build of another module.
	requires [2][]string
	// definitions are the files with CustomResourceDefinitions: a pattern in the module, or a module at a version, a space
	// and a pattern in that module.
	definitions [2][]string
	// program is the package of the operator's program, which the test runs as ./operator. If it is empty, the test calls
	// packages of the operator, and the folder has a file for each side: before_test.go and after_test.go.
	program string
	// verdict and about are those of the finding: about is a regular expression of its first line.
	verdict, about string
	// remains is a regular expression of findings that are other bugs, on both sides; "": there are none.
	remains string
}

func (p pin) version(s side) string { return p.versions[s] }

// pins are the reproduced bugs.
var pins = []pin{
	{
		name:   "cluster-api",
		issue:  "https://github.com/kubernetes-sigs/cluster-api/issues/13649",
		module: "sigs.k8s.io/cluster-api", versions: [2]string{"v1.13.2", "v1.14.2"},
		requires: [2][]string{{runtime}, {runtime, "sigs.k8s.io/cluster-api/api@v1.14.2"}},
		definitions: [2][]string{
			{"config/crd/bases/cluster.x-k8s.io_[cm]*.yaml"}, {"core/config/crd/bases/cluster.x-k8s.io_[cm]*.yaml"},
		},
		verdict: "left over", about: `^machinesets\.cluster\.x-k8s\.io/default/workers-\* exists \d+ times; without the fault \d+$`,
		// The same duplicates, seen in the status of their MachineDeployment first.
		remains: `^machinedeployments\.cluster\.x-k8s\.io/default/workers: status`,
	},
	{
		name:   "cert-manager",
		issue:  "https://github.com/cert-manager/cert-manager/issues/4956",
		module: "github.com/cert-manager/cert-manager", versions: [2]string{"v1.12.0", "v1.13.0"},
		requires:    [2][]string{{genproto}, {genproto}},
		definitions: [2][]string{{"deploy/crds/*.yaml"}, {"deploy/crds/*.yaml"}},
		verdict:     "step not reached", about: `^step 2, await Ready of certificates/web: `,
		// While its watch of Secrets is late, it issues the certificate again and again. v1.21.2 still does.
		remains: `^certificaterequests\.cert-manager\.io/default/web-\S+ exists`,
	},
	{
		name:   "ipam-in-cluster",
		issue:  "https://github.com/kubernetes-sigs/cluster-api-ipam-provider-in-cluster/pull/338",
		module: "sigs.k8s.io/cluster-api-ipam-provider-in-cluster", versions: [2]string{"v1.0.1", "v1.0.3"},
		requires: [2][]string{{runtime}, {runtime}},
		definitions: [2][]string{
			{
				"config/crd/bases/*.yaml",
				"sigs.k8s.io/cluster-api@v1.9.5 config/crd/bases/*_clusters.yaml",
				"sigs.k8s.io/cluster-api@v1.9.5 config/crd/bases/*_ipaddress*.yaml",
			},
			{
				"config/crd/bases/*.yaml",
				"sigs.k8s.io/cluster-api@v1.10.4 config/crd/bases/*_clusters.yaml",
				"sigs.k8s.io/cluster-api@v1.10.4 config/crd/bases/*_ipaddress*.yaml",
			},
		},
		verdict: "other end", about: `^ipaddresses\.ipam\.cluster\.x-k8s\.io/default/second: spec\.address is "10\.0\.0\.10"`,
	},
	{
		name:   "agent-sandbox",
		issue:  "https://github.com/kubernetes-sigs/agent-sandbox/issues/1215",
		module: "sigs.k8s.io/agent-sandbox", versions: [2]string{"v0.5.3", "v0.5.6"},
		requires:    [2][]string{{runtime}, {runtime}},
		definitions: [2][]string{{"k8s/crds/*.yaml"}, {"k8s/crds/*.yaml"}},
		verdict:     "invariant", about: `^there are \d sandboxes in a pool of \d `,
	},
	{
		name:   "kuberay",
		issue:  "https://github.com/ray-project/kuberay/issues/715",
		module: "github.com/ray-project/kuberay/ray-operator", versions: [2]string{"v1.2.2", "v1.3.0"},
		program:     "github.com/ray-project/kuberay/ray-operator",
		definitions: [2][]string{{"config/crd/bases/*.yaml"}, {"config/crd/bases/*.yaml"}},
		verdict:     "invariant", about: `^there are \d heads and \d workers, and the RayCluster has 1 and 2`,
		// The text of an error stays in the status after the operator has recovered from it.
		remains: `^rayclusters\.ray\.io/default/train: status\.reason is `,
	},
	{
		name:   "argo-rollouts",
		issue:  "https://github.com/argoproj/argo-rollouts/issues/4842",
		module: "github.com/argoproj/argo-rollouts", versions: [2]string{"v1.9.0", "v1.10.0"},
		program:     "github.com/argoproj/argo-rollouts/cmd/rollouts-controller",
		definitions: [2][]string{{"manifests/crds/*-crd.yaml"}, {"manifests/crds/*-crd.yaml"}},
		verdict:     "invariant", about: `^the Experiment has failed: .*replicaset\.apps "compare-\w+" not found`,
		// An Experiment also fails if a write to one of its ReplicaSets fails once.
		remains: `^the Experiment has failed: `,
	},
}
