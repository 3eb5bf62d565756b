package store

// What tests from outside see.
const CopiedAtOnce = copiedAtOnce

var ErrOvertaken = errOvertaken

const GenerationSuffix = generationSuffix

var PoolBuckets = poolBuckets
var PoolText = poolText
var TagOf = tagOf
