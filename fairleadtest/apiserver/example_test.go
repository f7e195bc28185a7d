package apiserver_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// An update is stored, but its answer is lost: the client sees an error, and only a read tells what happened.
func Example() {
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		panic(err)
	}
	if _, err := s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "settings",
	}}); err != nil {
		panic(err)
	}
	s.On(apiserver.Match{Verb: "update", Resource: "configmaps", Times: 1}, apiserver.DropAfter())

	ctx, settings := context.Background(), client.CoreV1().ConfigMaps("team-a")
	cm, err := settings.Get(ctx, "settings", metav1.GetOptions{})
	if err != nil {
		panic(err)
	}
	cm.Data = map[string]string{"colour": "blue"}
	_, err = settings.Update(ctx, cm, metav1.UpdateOptions{})
	fmt.Println("update failed:", err != nil)
	cm, err = settings.Get(ctx, "settings", metav1.GetOptions{})
	fmt.Println("stored:", cm.Data["colour"], err)
	fmt.Println("updates sent:", s.Log().Count(apiserver.Match{Verb: "update"}))
	// Output:
	// update failed: true
	// stored: blue <nil>
	// updates sent: 1
}
