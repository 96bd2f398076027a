//! The properties of every system that the reader returns: other crates rely on them without checks.

use hyoshi_model::time::LONGEST_SPAN;
use hyoshi_model::*;

/// Panics if the system lacks a property.
pub fn check(system: &System) {
    let ids = system.operations.len() as u32;
    let known = |operations: &[OperationId]| operations.iter().all(|operation| operation.0 < ids);
    assert!(!system.hosts.is_empty() && !system.processors.is_empty());
    assert!(!system.duration.is_zero());
    for processor in &system.processors {
        assert!(processor.host.index() < system.hosts.len());
        assert!((1..=1_000_000).contains(&processor.cap_ppm) && !processor.cap_window.is_zero());
        assert!((1..=16).contains(&processor.pool));
    }
    for operation in &system.operations {
        assert!(operation.on.index() < system.processors.len());
        assert!(known(operation.trigger.predecessors()) && known(&operation.reads) && known(&operation.roots));
        assert!(operation.roots.is_sorted() && !operation.roots.is_empty());
        assert!(operation.roots.iter().all(|root| system.operation(*root).trigger.predecessors().is_empty()));
        assert!(operation.trigger != Trigger::All(vec![]));
        assert!(operation.min_interval.is_none_or(|interval| operation.is_requested() && !interval.is_zero()));
        assert!(
            operation.uses.iter().all(|(resource, span)| resource.index() < system.resources.len() && !span.is_zero())
        );
        assert!(operation.queue.limit >= 1 && operation.payload <= 65_536);
        if let Some(Replication { to, .. }) = &operation.replication {
            assert!(operation.payload > 0 && !to.is_empty() && to.is_sorted_by(|one, next| one < next));
            let own = system.processor(operation.on).host;
            assert!(to.iter().all(|host| *host != own && host.index() < system.hosts.len()));
        }
        let triggered = !operation.trigger.predecessors().is_empty();
        assert!(operation.guard == Guard::Off || triggered);
        assert!(operation.timeout.or(operation.lifespan).is_none_or(|span| triggered && !span.is_zero()));
        if let Trigger::First(copies) = &operation.trigger {
            let same = |copy: &OperationId| system.operation(*copy).roots == operation.roots;
            assert!(copies.len() > 1 && operation.roots.len() == 1);
            assert!(copies.iter().all(|copy| same(copy) && system.numbered_by_root(*copy)));
        }
        if let Trigger::Correlated(correlation) = &operation.trigger {
            let groups: Vec<_> = correlation.groups().collect();
            assert!(groups.len() > 1 && groups.iter().all(|group| group.is_sorted_by(|one, next| one < next)));
            assert!(correlation.within.is_some() || !correlation.is_plain());
            assert!(
                *correlation
                    == Correlation::new(
                        &correlation.groups().map(<[_]>::to_vec).collect::<Vec<_>>(),
                        correlation.within
                    )
            );
        }
    }
    for event in &system.events {
        assert!(event.insecure || !event.endpoints.iter().any(Endpoint::is_exposed));
        let host = |id: &OperationId| system.processor(system.operation(*id).on).host;
        let is_on_one_host = event.suppliers.iter().all(|one| host(one) == host(&event.suppliers[0]));
        assert!(event.endpoints.is_empty() || (!event.suppliers.is_empty() && is_on_one_host));
        assert!(known(&event.suppliers) && known(&event.consumers) && event.payload <= 65_536);
        let own = |id: &OperationId| system.operation(*id).payload >= event.payload;
        assert!(event.suppliers.iter().all(own));
        for consumer in &event.consumers {
            let predecessors = system.operation(*consumer).trigger.predecessors();
            assert!(event.suppliers.iter().any(|supplier| predecessors.contains(supplier)));
        }
    }
    let endpoints: Vec<_> = system.hosts.iter().flat_map(|host| host.endpoints.iter().chain(&host.zenoh)).collect();
    assert!(endpoints.iter().collect::<std::collections::HashSet<_>>().len() == endpoints.len());
    assert!(system.hosts.iter().all(|host| host.endpoints.len() <= endpoint::ENDPOINTS));
    assert!(
        system
            .hosts
            .iter()
            .all(|host| host.insecure || !host.endpoints.iter().chain(host.over_zenoh()).any(Endpoint::is_exposed))
    );
    for (id, host) in (0..).map(HostId).zip(&system.hosts) {
        let Some(Gateway { mode, listen, connect, events, publish, readers, publishers }) = &host.gateway else {
            continue;
        };
        let is_usable =
            |endpoint: &Endpoint| !matches!(endpoint, Endpoint::Unix(_)) && (host.insecure || !endpoint.is_exposed());
        assert!(
            readers.is_none() && publishers.is_none()
                || listen.iter().chain(connect).all(|one| matches!(one, Endpoint::Tls(_)))
        );
        assert!(listen.iter().chain(connect).all(is_usable) && listen.len().max(connect.len()) <= endpoint::ENDPOINTS);
        assert!(listen.iter().all(|endpoint| !endpoints.contains(&endpoint)));
        assert!(match mode {
            GatewayMode::Client => listen.is_empty() && !connect.is_empty(),
            GatewayMode::Peer | GatewayMode::Router => !listen.is_empty() || !connect.is_empty(),
        });
        let has_open = |event: &u32| {
            let suppliers = system.events[*event as usize].suppliers.iter().map(|id| system.operation(*id));
            suppliers.clone().any(|one| system.processor(one.on).host == id && one.is_requested())
        };
        assert!(!events.is_empty() || !publish.is_empty());
        assert!(publish.iter().all(has_open));
    }
    for host in &system.hosts {
        let devices: std::collections::HashSet<_> = host.network.iter().map(|device| &device.name).collect();
        assert_eq!(devices.len(), host.network.len());
    }
    for device in system.hosts.iter().flat_map(|host| &host.network) {
        let dscps: Vec<_> = device.classes.iter().flat_map(|class| &class.dscp).collect();
        assert!(hyoshi_model::NetworkDevice::is_name(&device.name) && device.rate >= 100_000);
        assert_eq!(dscps.iter().collect::<std::collections::HashSet<_>>().len(), dscps.len());
        assert!((1..=hyoshi_model::network::CLASSES).contains(&device.classes.len()));
        assert!(device.rest() >= hyoshi_model::network::LEAST_SHARE);
        let holds = |class: &hyoshi_model::TrafficClass| {
            class.share > 0 && class.share <= class.ceiling && class.ceiling <= 1_000_000 && !class.dscp.is_empty()
        };
        assert!(device.classes.iter().all(holds));
    }
    for chain in &system.chains {
        assert!(chain.path.len() >= 2 && known(&chain.path));
        assert!(chain.deadline.or(chain.max_age).or(chain.max_reaction).is_some());
        for ends in chain.path.windows(2) {
            let next = system.operation(ends[1]);
            assert!(next.trigger.predecessors().contains(&ends[0]) || next.reads.contains(&ends[0]));
        }
    }
    for link in &system.links {
        assert!(link.between.0 != link.between.1 && link.delay.0 <= link.delay.1);
        assert!(link.between.0.index().max(link.between.1.index()) < system.hosts.len());
        assert!(link.loss_ppm <= 1_000_000);
    }
    assert_eq!(system.epochs.first().map(|epoch| epoch.at), Some(Instant::ZERO));
    assert!(system.epochs.windows(2).all(|two| two[0].at < two[1].at));
    for epoch in &system.epochs {
        assert_eq!(epoch.settings.len(), system.operations.len());
        for (operation, setting) in system.operations.iter().zip(epoch.settings.iter()) {
            check_setting(operation, setting);
        }
    }
    check_causes_come_first(system);
}

fn check_setting(operation: &Operation, setting: &Setting) {
    assert!(!setting.period.is_zero() && setting.period <= setting.slowest && setting.slowest <= LONGEST_SPAN);
    assert!(setting.phase <= LONGEST_SPAN && setting.offset <= LONGEST_SPAN && setting.jitter <= LONGEST_SPAN);
    assert!(!setting.bcet.is_zero() && setting.bcet <= setting.wcet && setting.wcet <= LONGEST_SPAN);
    assert!(!setting.deadline.span().is_zero() && setting.deadline.span() <= LONGEST_SPAN);
    assert!(
        !setting.execution_time.shortest().is_zero()
            && setting.execution_time.shortest() <= setting.execution_time.longest()
    );
    assert!(setting.legs >= 1 && setting.critical_legs <= setting.legs);
    assert!(!operation.critical || setting.critical_legs == setting.legs);
    let held: Span = operation.uses.iter().map(|(_, span)| *span).sum();
    assert!(held <= setting.wcet);
    if operation.trigger.predecessors().is_empty() {
        assert!(matches!(setting.deadline, Deadline::Own(_)));
    }
    if operation.trigger != Trigger::Periodic {
        assert!(setting.legs == 1 && setting.jitter.is_zero() && setting.phase.is_zero());
    }
}

/// No operation triggers itself, directly or through others.
fn check_causes_come_first(system: &System) {
    let mut done = vec![false; system.operations.len()];
    loop {
        let mut progress = false;
        for (position, operation) in system.operations.iter().enumerate() {
            let ready = operation.trigger.predecessors().iter().all(|predecessor| done[predecessor.index()]);
            progress |= ready && !std::mem::replace(&mut done[position], ready);
        }
        if !progress {
            break;
        }
    }
    assert!(done.iter().all(|done| *done), "a trigger cycle");
}
