package toys

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/fairlead-io/fairlead/simulate"
)

// ownName makes up the name of the ConfigMap, and records it in the status when the ConfigMap exists. A crash between
// the two loses the name. Its twin records the name first.
func ownName(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		name := w.Status("configMap")
		if name == "" {
			name = w.GetName() + "-" + rand.String(5)
			if fixed {
				return t.SetStatus(w, map[string]any{"configMap": name}, true)
			}
		}
		if w.Status("phase") == "Ready" {
			return nil
		}
		if _, err := t.create(configMap(w, name)); ignore(err, apierrors.IsAlreadyExists) != nil {
			return err
		}
		return t.SetStatus(w, map[string]any{"configMap": name, "phase": "Ready"}, true)
	})
}

// randomContent does as CreatedTwice does, with a password in the ConfigMap, so that each run has other content.
func randomContent(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		known, err := t.configMaps.List(labels.Set{"widget": w.GetName()}.AsSelector())
		if err != nil {
			return err
		}
		if len(known) == 0 {
			cm := configMap(w, w.GetName())
			if cm.Data["password"] = rand.String(20); !fixed {
				cm.Name, cm.GenerateName = "", w.GetName()+"-"
			}
			if _, err := t.create(cm); ignore(err, apierrors.IsAlreadyExists) != nil {
				return err
			}
		}
		return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
	})
}

// randomVolume creates a pod unless the status names it, with a volume of which it makes up the name. A crash between
// the two leaves a second pod. The pod of its twin has a fixed name.
func randomVolume(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		if w.Status("phase") == "Ready" {
			return nil
		}
		volume := "data-" + rand.String(5)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: w.GetName() + "-"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "main", Image: "example.com/main",
				VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{
				Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			}},
		}}
		if fixed {
			pod.Name, pod.GenerateName = w.GetName(), ""
		}
		_, err := t.client.CoreV1().Pods("default").Create(t.Context, pod, metav1.CreateOptions{})
		if ignore(err, apierrors.IsAlreadyExists) != nil {
			return err
		}
		return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
	})
}
