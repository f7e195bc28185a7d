package call_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// A create, a read of an absent object, and a list that reads all pages.
func Example() {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := call.New(call.Options{Config: server.Config()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	// The answer to the first try is lost. The name is fixed, so the create is repeated, and the existing object is
	// recognized as its result.
	server.On(apiserver.Match{Verb: "create", Times: 1}, apiserver.DropAfter())
	answer, err := call.Do(ctx, client, call.Request{
		Verb: call.VerbCreate, Resource: configMaps, Kind: "ConfigMap", Namespace: "team-a",
		Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Data: map[string]string{"colour": "green"}},
	}, call.Policy{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("created, recovered:", answer.Recovered)

	answer, err = call.Do(ctx, client, call.Request{
		Verb: call.VerbGet, Resource: configMaps, Namespace: "team-a", Name: "db", NotFoundOK: true,
	}, call.Policy{})
	fmt.Println("absent:", answer == nil, err)

	for cm, err := range call.List[corev1.ConfigMap](ctx, client, call.Request{Resource: configMaps}, call.Policy{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cm.Name, cm.Data["colour"])
	}
	// Output:
	// created, recovered: true
	// absent: true <nil>
	// web green
}
