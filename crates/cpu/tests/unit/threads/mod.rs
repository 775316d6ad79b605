//! Loops on several threads.

mod parallel;
