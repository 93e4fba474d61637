"""How good is the document vector of a checkpoint on tasks of MTEB, by MTEB's own code?

It measures the vectors alone: no words, no alignment, no adapter. MTEB downloads the data of a
task, and writes its results, in its own format, below the folder of `--output`. Needs the extra
`external`.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import mteb
import typer
from mteb.cache import ResultCache
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder

from benchmarks.external.document_encoder import DocumentEncoder
from encoder.arrays import Float32
from encoder.checkpoint import DEFAULT_CHECKPOINT

_REVISION_DIGITS = 12


class MtebModel(AbsEncoder):
    """A checkpoint in the protocol of MTEB's encoders."""

    def __init__(self, encoder: DocumentEncoder) -> None:
        self.model = encoder
        self.mteb_model_meta = _meta(encoder)

    def encode(self, inputs: Iterable[Mapping[str, Any]], **_: Any) -> Float32:
        """Return Float32[N, dimension] of the texts of some batches, whatever the task."""
        return self.model.encode([text for batch in inputs for text in batch["text"]])


def _meta(encoder: DocumentEncoder) -> ModelMeta:
    checkpoint = encoder.checkpoint
    return ModelMeta(
        loader=None,
        name=f"longmatch/{checkpoint.name}",
        # Precision changes scores a little: results of each are kept apart.
        revision=f"{checkpoint.fingerprint[:_REVISION_DIGITS]}-{encoder.precision}",
        release_date=None,
        languages=None,
        n_parameters=None,
        memory_usage_mb=None,
        max_tokens=checkpoint.max_blocks * checkpoint.block_length,
        embed_dim=encoder.dimension,
        license=None,
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        framework=["ONNX"],
        similarity_fn_name="cosine",
        use_instructions=False,
        training_datasets=None,
    )


def evaluate_tasks(tasks: Sequence[Any], model: MtebModel, output: Path | None) -> dict[str, float]:
    """Return the main score of each task; a task with a result in the folder is not run again."""
    cache = None if output is None else ResultCache(output)
    found = mteb.evaluate(model, tasks, cache=cache, co2_tracker=False, show_progress_bar=False)
    return {one.task_name: one.get_score() for one in found.task_results}


def main(
    task: Annotated[list[str], typer.Option(help="Name of a task; may be repeated.")],
    output: Annotated[Path, typer.Option(help="Folder of the results.")],
    checkpoint: Annotated[Path, typer.Option(help="The encoder.")] = DEFAULT_CHECKPOINT,
    precision: Annotated[str | None, typer.Option(help="int8, fp16 or fp32.")] = None,
    threads: Annotated[int | None, typer.Option(help="By default one for each core.")] = None,
) -> None:
    """Run tasks, and print the main score of each."""
    try:
        tasks = mteb.get_tasks(tasks=task)
    except KeyError as error:
        raise typer.BadParameter(str(error.args[0]), param_hint="--task") from error
    model = MtebModel(DocumentEncoder(checkpoint, precision=precision, threads=threads))
    for name, score in evaluate_tasks(tasks, model, output).items():
        typer.echo(f"{name}\t{score:.4f}")


if __name__ == "__main__":
    typer.run(main)
