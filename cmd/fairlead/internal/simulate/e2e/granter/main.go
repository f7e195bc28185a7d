// Command granter is a controller for tests of fairlead simulate. For each ConfigMap with the label grant it creates a
// Secret, and writes its name to the ConfigMap. Without the flag -safe the Secret has a generated name, so that a crash
// between the two writes leaves one Secret too many. With the flag -pod it knows only the configuration in a Pod.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	safe := flag.Bool("safe", false, "derive the name of the Secret from that of the ConfigMap")
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file")
	pod := flag.Bool("pod", false, "use only the configuration in a Pod")
	flag.Parse()
	cfg, err := configuration(*kubeconfig, *pod)
	if err == nil {
		err = run(context.Background(), cfg, *safe)
	}
	fmt.Fprintln(os.Stderr, "granter:", err)
	os.Exit(1)
}

func configuration(kubeconfig string, pod bool) (*rest.Config, error) {
	if pod {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// run returns only with an error.
func run(ctx context.Context, cfg *rest.Config, safe bool) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	core := client.CoreV1()
	for {
		w, err := core.ConfigMaps("default").Watch(ctx, metav1.ListOptions{LabelSelector: "grant"})
		if err != nil {
			return err
		}
		for e := range w.ResultChan() {
			m, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				return fmt.Errorf("the watch failed: %v", e.Object)
			}
			if m.Data["secret"] == "" && m.DeletionTimestamp == nil {
				if err := grant(ctx, core, m, safe); err != nil {
					return err
				}
			}
		}
	}
}

// grant creates the Secret, and then names it in the ConfigMap.
func grant(ctx context.Context, core typedcorev1.CoreV1Interface, m *corev1.ConfigMap, safe bool) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: m.Name + "-"}}
	if safe {
		secret.ObjectMeta = metav1.ObjectMeta{Name: m.Name}
	}
	created, err := core.Secrets("default").Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		created, err = secret, nil
	}
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"data":{"secret":%q}}`, created.Name)
	_, err = core.ConfigMaps("default").Patch(ctx, m.Name, "application/merge-patch+json", []byte(patch),
		metav1.PatchOptions{})
	return err
}
