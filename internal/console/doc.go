// Package console serves pages for operators: what comes in and what leaves, why a bucket sends nothing, and forms that change it.
//
// It knows nothing by itself. Each page asks the operator's API in its process, with the key of the visitor, so that the API decides every right;
// what a page lacks goes into the API first. Every page and every action works without the script, which adds live numbers and pictures.
package console
