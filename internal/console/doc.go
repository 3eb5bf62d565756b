// Package console serves pages for operators: arrivals and departures, why a bucket sends nothing, and forms that change it.
//
// It has no data of its own. Each page calls the operator's API in its process, with the key of the visitor, so the API decides every right. Data that a
// page lacks goes into the API first. Every page and every action works without the script, which adds live numbers and pictures.
package console
