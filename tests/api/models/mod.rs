//! The models of `torchrs::models` against their originals, by what `tools/golden/export-models.py`
//! recorded: all names and shapes of the full sizes; outputs, gradients and running statistics of full
//! or small ones, with weights that both sides make from names.

mod formula;
mod gnmt;
mod gpt2;
mod images;
mod llama;
mod neumf;
mod pretrained;
mod pretrained_files;
mod shapes;
