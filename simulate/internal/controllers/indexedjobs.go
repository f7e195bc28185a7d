package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// An indexed Job has one successful pod for each index from 0 to its completions.

const (
	noIndex         = -1
	indexVariable   = "JOB_COMPLETION_INDEX"
	maxGeneratedFor = 58 // characters of a name, before the random ones
)

func isIndexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}

// indexOf returns the index of a pod; noIndex if it has none, or one that the Job does not have.
func (r *jobRun) indexOf(p *object) int {
	i, err := strconv.Atoi(as[corev1.Pod](p).Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || i < 0 || i >= int(r.completions()) {
		return noIndex
	}
	return i
}

// countIndexes sets the indexes that have succeeded: those in the status, and those of pods that it does not count yet.
func (r *jobRun) countIndexes() {
	r.indexes = map[int]bool{}
	for part := range strings.SplitSeq(r.job.Status.CompletedIndexes, ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if err != nil || errTo != nil {
			continue
		}
		for i := from; i <= min(to, int(r.completions())-1); i++ {
			r.indexes[i] = true
		}
	}
	for _, p := range r.pods {
		if i := r.indexOf(p); i != noIndex && as[corev1.Pod](p).Status.Phase == corev1.PodSucceeded &&
			p.hasFinalizer(batchv1.JobTrackingFinalizer) {
			r.indexes[i] = true
		}
	}
}

// formatIndexes returns the form of a status: "1,3-5,7".
func formatIndexes(set map[int]bool) string {
	var parts []string
	all := slices.Sorted(maps.Keys(set))
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n] == all[0]+n {
			n++
		}
		switch first, last := all[0], all[n-1]; n {
		case 1:
			parts = append(parts, fmt.Sprint(first))
		case 2:
			parts = append(parts, fmt.Sprint(first), fmt.Sprint(last))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", first, last))
		}
		all = all[n:]
	}
	return strings.Join(parts, ",")
}

// superfluous returns an active pod whose index another one has or the Job does not have; nil if there is none.
func (r *jobRun) superfluous() *object {
	kept := map[int]*object{}
	for _, p := range r.active {
		i := r.indexOf(p)
		if i == noIndex {
			return p
		}
		if other := kept[i]; other != nil {
			return slices.MinFunc([]*object{p, other}, deletedFirst)
		}
		kept[i] = p
	}
	return nil
}

// pendingIndex returns the first index without a pod.
func (r *jobRun) pendingIndex() int {
	taken := maps.Clone(r.indexes)
	for _, p := range r.active {
		taken[r.indexOf(p)] = true
	}
	if r.replacesOnlyFailed() {
		for _, p := range r.pods {
			if p.isDeleted {
				taken[r.indexOf(p)] = true
			}
		}
	}
	for i := range int(r.completions()) {
		if !taken[i] {
			return i
		}
	}
	return noIndex
}

// setIndex gives a new pod its index.
func setIndex(pod *corev1.Pod, job string, index int) {
	text := strconv.Itoa(index)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[batchv1.JobCompletionIndexAnnotation] = text
	pod.Labels[batchv1.JobCompletionIndexAnnotation] = text
	pod.Spec.Hostname = job + "-" + text
	suffix := "-" + text + "-"
	pod.GenerateName = job[:min(len(job), maxGeneratedFor-len(suffix))] + suffix
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			addIndexVariable(&list[i])
		}
	}
}

func addIndexVariable(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == indexVariable }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{
			APIVersion: "v1", FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']",
		},
	}})
}
