package deploytest

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRestricted: the pods meet the profile that the namespace enforces (Pod Security Standards, restricted).
func TestRestricted(t *testing.T) {
	t.Parallel()
	built := build(t)
	pod := at(t, built, "Deployment", "spec", "template", "spec").(map[string]any)
	for _, field := range []string{"hostNetwork", "hostPID", "hostIPC", "hostUsers"} {
		if pod[field] != nil {
			t.Errorf("the pod has %s: %v", field, pod[field])
		}
	}
	for _, volume := range list(pod["volumes"]) {
		for kind := range volume.(map[string]any) {
			if !slices.Contains([]string{"name", "secret", "configMap", "emptyDir", "projected", "downwardAPI"}, kind) {
				t.Errorf("the pod has a volume of kind %s", kind)
			}
		}
	}
	context := pod["securityContext"].(map[string]any)
	if context["runAsNonRoot"] != true || context["runAsUser"] == 0 {
		t.Errorf("it may run as root: %v", context)
	}
	if diff := cmp.Diff(map[string]any{"type": "RuntimeDefault"}, context["seccompProfile"]); diff != "" {
		t.Errorf("seccomp (-want +got):\n%s", diff)
	}
	want := map[string]any{
		"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
		"capabilities": map[string]any{"drop": []any{"ALL"}},
	}
	for _, container := range pod["containers"].([]any) {
		if diff := cmp.Diff(want, container.(map[string]any)["securityContext"]); diff != "" {
			t.Errorf("container (-want +got):\n%s", diff)
		}
		for _, port := range container.(map[string]any)["ports"].([]any) {
			if port.(map[string]any)["hostPort"] != nil {
				t.Errorf("port of the host: %v", port)
			}
		}
	}
	for _, r := range built.Resources() {
		if r.GetKind() == "Namespace" && r.GetLabels()["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Errorf("the namespace enforces %v", r.GetLabels())
		}
	}
}

// rule is one rule of a NetworkPolicy, as far as tests read it.
type rule struct {
	peers []any
	ports []string
}

func rules(t *testing.T, direction, peers string) (out []rule) {
	t.Helper()
	for _, each := range at(t, build(t), "NetworkPolicy", "spec", direction).([]any) {
		var r rule
		r.peers, _ = each.(map[string]any)[peers].([]any)
		ports, _ := each.(map[string]any)["ports"].([]any)
		for _, p := range ports {
			r.ports = append(r.ports, fmt.Sprint(p.(map[string]any)["port"]))
		}
		out = append(out, r)
	}
	return out
}

// TestIngress: all peers may reach the HTTP API, and only some the metrics.
func TestIngress(t *testing.T) {
	t.Parallel()
	for _, r := range rules(t, "ingress", "from") {
		switch {
		case len(r.ports) != 1:
			t.Errorf("ports %v in one rule", r.ports)
		case r.ports[0] != "http" && len(r.peers) == 0:
			t.Errorf("port %s is open to all peers", r.ports[0])
		}
	}
}

// TestEgress: the controller reaches DNS, the API server and public addresses, and no other port in the cluster.
func TestEgress(t *testing.T) {
	t.Parallel()
	if types := at(t, build(t), "NetworkPolicy", "spec", "policyTypes"); !slices.Contains(types.([]any), any("Egress")) {
		t.Fatalf("egress is open: %v", types)
	}
	may := func(addr, port string) bool {
		return slices.ContainsFunc(rules(t, "egress", "to"), func(r rule) bool {
			return (r.ports == nil || slices.Contains(r.ports, port)) &&
				(r.peers == nil || slices.ContainsFunc(r.peers, func(peer any) bool {
					block, _ := peer.(map[string]any)["ipBlock"].(map[string]any)
					return block != nil && within(block["cidr"], addr) &&
						!slices.ContainsFunc(list(block["except"]), func(x any) bool { return within(x, addr) })
				}))
		})
	}
	for target, want := range map[[2]string]bool{
		{"10.96.0.1", "443"}: true, {"192.168.1.10", "6443"}: true, {"8.8.8.8", "443"}: true, {"8.8.8.8", "8080"}: true,
		{"2606:4700::1111", "8443"}: true,
		{"10.0.0.7", "80"}:          false, {"10.0.0.7", "10250"}: false, {"169.254.169.254", "80"}: false,
		{"172.16.3.4", "5432"}: false,
		{"192.168.1.10", "22"}: false, {"100.64.0.1", "80"}: false, {"fd00::1", "80"}: false, {"127.0.0.1", "80"}: false,
	} {
		if got := may(target[0], target[1]); got != want {
			t.Errorf("%s port %s: %v, want %v", target[0], target[1], got, want)
		}
	}
	if !slices.ContainsFunc(rules(t, "egress", "to"),
		func(r rule) bool { return slices.Contains(r.ports, "53") && r.peers != nil }) {
		t.Error("names cannot be resolved")
	}
}

func list(v any) []any { l, _ := v.([]any); return l }

func within(cidr any, addr string) bool {
	prefix, err := netip.ParsePrefix(fmt.Sprint(cidr))
	return err == nil && prefix.Contains(netip.MustParseAddr(addr))
}

// TestRights: the controller may write Leases and Secrets only in its own namespace.
func TestRights(t *testing.T) {
	t.Parallel()
	built := build(t)
	for _, r := range built.Resources() {
		if r.GetKind() != "ClusterRole" {
			continue
		}
		role, err := r.Map()
		if err != nil {
			t.Fatal(err)
		}
		for _, each := range role["rules"].([]any) {
			rights := each.(map[string]any)
			for _, resource := range rights["resources"].([]any) {
				switch resource {
				case "leases":
					t.Errorf("%s: %v", r.GetName(), rights)
				case "secrets", "serviceaccounts", "nodes", "servicecidrs":
					if diff := cmp.Diff([]any{"list", "watch"}, rights["verbs"]); diff != "" {
						t.Errorf("%s may do more with %s than read: %s", r.GetName(), resource, diff)
					}
				case "services", "endpointslices":
					if diff := cmp.Diff([]any{"kubernetes"}, rights["resourceNames"]); diff != "" {
						t.Errorf("%s may read other %s: %s", r.GetName(), resource, diff)
					}
				}
			}
		}
	}
	args := at(t, built, "Deployment", "spec", "template", "spec", "containers", 0, "args").([]any)
	if !slices.Contains(args, any("--system-namespace=$(NAMESPACE)")) {
		t.Errorf("key and Lease are not in the namespace of the controller: %v", args)
	}
}
