//! Programs that are measured: a counter of rows above each operator of the plan, and a clock around each input, stage and sink that the
//! operator has become.

use crate::measures::Gauge;
use crate::pipeline::{Input, InputPlan, OpenInput, Output, Sink, SinkPlan, Stage, StagePlan, Step, Work};
use crate::run::Run;
use firn_base::Result;
use firn_base::sync::Arc;
use firn_vector::Chunk;
use std::any::Any;

/// A stage that counts rows.
pub(crate) struct Counter(pub Gauge);

impl StagePlan for Counter {
    fn start(&self, _: Work<'_>) -> Result<Box<dyn Stage>> {
        Ok(Box::new(Counter(self.0.clone())))
    }
}

impl Stage for Counter {
    fn push(&mut self, _: Work<'_>, chunk: Chunk) -> Result<Output> {
        self.0.add_rows(chunk.count());
        Ok(Output::Last(chunk))
    }
}

/// Something with a clock around it.
pub(crate) struct Timed<T: ?Sized> {
    gauge: Gauge,
    of: Box<T>,
}

impl<T: ?Sized> Timed<T> {
    pub fn new(gauge: &Gauge, of: Box<T>) -> Timed<T> {
        Timed { gauge: gauge.clone(), of }
    }
}

impl InputPlan for Timed<dyn InputPlan> {
    fn open(&self, work: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        Ok(Arc::new(TimedOpenInput {
            gauge: self.gauge.clone(),
            of: self.gauge.time(|| self.of.open(work))?,
        }))
    }
}

struct TimedOpenInput {
    gauge: Gauge,
    of: Arc<dyn OpenInput>,
}

impl OpenInput for TimedOpenInput {
    fn worker(&self, run: &Run) -> Box<dyn Input> {
        Box::new(Timed::new(&self.gauge, self.of.worker(run)))
    }

    fn is_ordered(&self) -> bool {
        self.of.is_ordered()
    }
}

impl Input for Timed<dyn Input> {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        self.gauge.time(|| self.of.step(work))
    }
}

impl StagePlan for Timed<dyn StagePlan> {
    fn open(&self) -> Option<Box<dyn StagePlan>> {
        self.of.open().map(|open| Box::new(Timed::new(&self.gauge, open)) as _)
    }

    fn start(&self, work: Work<'_>) -> Result<Box<dyn Stage>> {
        Ok(Box::new(Timed::new(&self.gauge, self.gauge.time(|| self.of.start(work))?)))
    }
}

impl Stage for Timed<dyn Stage> {
    fn push(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Output> {
        self.gauge.time(|| self.of.push(work, chunk))
    }

    fn resume(&mut self, work: Work<'_>) -> Result<Output> {
        self.gauge.time(|| self.of.resume(work))
    }

    fn end(&mut self, work: Work<'_>) -> Result<Output> {
        self.gauge.time(|| self.of.end(work))
    }
}

impl SinkPlan for Timed<dyn SinkPlan> {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Timed::new(&self.gauge, self.gauge.time(|| self.of.start(work))?)))
    }

    fn finish(&self, work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>> {
        let own = |sink: Box<dyn Sink>| {
            let timed = sink.into_any().downcast::<Timed<dyn Sink>>();
            timed.unwrap_or_else(|_| panic!("a sink finishes what it has started")).of
        };
        let sinks = sinks.into_iter().map(own).collect();
        self.gauge.time(|| self.of.finish(work, sinks))
    }
}

impl Sink for Timed<dyn Sink> {
    fn consume(&mut self, work: Work<'_>, chunk: Chunk) -> Result<bool> {
        self.gauge.time(|| self.of.consume(work, chunk))
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
