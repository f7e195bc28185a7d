package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Objects are applied with their namespaces, again after a change, and with strict validation.
func TestApply(t *testing.T) {
	ns, dir := env.Namespace(t)+"-applied", t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+ns+"}\n")
	for _, value := range []string{"one", "two"} {
		write("config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: "+ns+"}\n"+
			"data: {k: "+value+"}\n")
		env.Apply(t, dir)
		config, err := kubernetes.NewForConfigOrDie(env.Config(t)).CoreV1().ConfigMaps(ns).
			Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || config.Data["k"] != value {
			t.Errorf("want %s: %v, %v", value, config, err)
		}
	}
}
