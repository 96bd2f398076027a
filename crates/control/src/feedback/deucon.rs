//! DEUCON: the decentralised form of [EUCON](super::eucon), with a small controller for each processor.
//!
//! After Wang, Jia, Lu and Koutsoukos, "DEUCON: Decentralized End-to-End Utilization Control for Distributed Real-Time
//! Systems", IEEE Transactions on Parallel and Distributed Systems 18(7), 2007, pages 996-1009.
//!
//! As in the paper, the controller of a processor sets the rates of the tasks whose first subtask is there. It uses the
//! utilisations of its *neighbours* only, the processors that those tasks visit. So the size of its problem depends on
//! its own tasks and their lengths, and not on the number of processors.
//!
//! All controllers act at the same time on processors that they share. If each corrected the whole error of a processor
//! with `n` controllers, the sum would be `n` times the correction. So controllers exchange their planned changes, and
//! each corrects only its *share* of the remaining error. It assumes that the other controllers correct theirs.
//!
//! # Derivation
//!
//! Let `V(d) = sum over processors j of f_j(sum over controllers i of a_ij d_i)`: `d_i` are the planned changes of
//! controller `i`, `a_ij d_i` is their effect on processor `j`, and `f_j` is the convex cost of that processor's predicted
//! utilisation. `V` is the cost of the central problem. For a present plan `p`, let `c_j` be the sum of all `a_ij p_i`.
//! With shares `s_ij > 0` that sum up to 1 for each processor, Jensen's inequality gives
//!
//! ```text
//! f_j(sum over i of a_ij d_i) = f_j(sum over i of s_ij (c_j + (a_ij / s_ij) (d_i - p_i)))
//!                            <= sum over i of s_ij f_j(c_j + (a_ij / s_ij) (d_i - p_i))
//! ```
//!
//! The right side is a sum of terms, each of one controller, and equal to the left side for `d = p`. So controller `i`
//! minimises the sum over its neighbours `j` of `s_ij f_j(c_j + (a_ij / s_ij) (d_i - p_i))`, within the ranges of its
//! rates. Then `V` is lower than for `p`, or `p` is already best for each controller. If `f` is smooth, the gradient of
//! `V` is then that of the central problem, so the plan is its optimum. Richtarik and Takac, "Parallel coordinate descent
//! methods for big data optimization", Mathematical Programming 156, 2016, use the same bound for squares with equal
//! shares.
//!
//! In each sampling period the controllers plan four times. They begin without a plan. Each time they receive `c_j` of
//! their neighbours. Then all carry out their plans. The share of a controller is proportional to the declared
//! utilisation that its rates can move on that processor.
//!
//! # Differences
//!
//! - From the paper: the shares, several exchanges of plans in a period, and the derivation above are ours. Only the
//!   first change of the other controllers' plans counts.
//! - From our EUCON: utilisation above a set point costs 16 times its square, instead of a linear penalty. A linear one
//!   has a kink at the set point. There a controller would not move along it, although other controllers could make
//!   room. So if some set points cannot be reached, utilisations rest slightly above some of them.
//! - It converges more slowly than EUCON where the tasks of several controllers must change in opposite directions.

use alloc::vec::Vec;

use hyoshi_model::{Contents, ControlGroup, ControlNode, FeedbackAlgorithm};

/// How often the controllers plan in each sampling period, each time with the plans of their neighbours.
pub const ROUNDS: usize = hyoshi_model::PLANNING_ROUNDS;
/// The least share of a controller, times the number of controllers of the processor: shares must be above 0.
const LEAST: f64 = 0.02;

/// The shares of each node in the errors of its members, in an epoch. `None` for EUCON.
pub fn shares(contents: &Contents, epoch: usize, group: &ControlGroup, nodes: &[ControlNode]) -> Vec<Option<Vec<f64>>> {
    if group.algorithm != FeedbackAlgorithm::Deucon {
        return alloc::vec![None; nodes.len()];
    }
    let moved: Vec<Vec<f64>> = nodes.iter().map(|node| movable(contents, epoch, group, node)).collect();
    let mut sums = alloc::vec![(0.0, 0u32); group.loops.len()];
    for (node, moved) in nodes.iter().zip(&moved) {
        for (member, moved) in node.members.iter().zip(moved) {
            let sum = &mut sums[*member];
            *sum = (sum.0 + moved, sum.1 + 1);
        }
    }
    let share = |(member, moved): (&usize, &f64)| {
        let (sum, count) = sums[*member];
        let equal = 1.0 / f64::from(count);
        if sum > 0.0 { (1.0 - LEAST) * moved / sum + LEAST * equal } else { equal }
    };
    nodes.iter().zip(&moved).map(|(node, moved)| Some(node.members.iter().zip(moved).map(share).collect())).collect()
}

/// The declared utilisation of each member that the rates of a node can move.
fn movable(contents: &Contents, epoch: usize, group: &ControlGroup, node: &ControlNode) -> Vec<f64> {
    let range = |task: &usize| {
        let setting = contents.setting(epoch, group.tasks[*task].root);
        let rate = |nanos: u64| 1.0 / nanos.max(1) as f64;
        (rate(setting.period.as_nanos()) - rate(setting.slowest.as_nanos())).max(0.0)
    };
    let part = |member: usize, task: &usize| {
        group.tasks[*task].demand(contents, epoch, member).as_nanos() as f64 * range(task)
    };
    node.members.iter().map(|member| node.tasks.iter().map(|task| part(*member, task)).sum()).collect()
}
